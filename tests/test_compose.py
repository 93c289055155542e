"""Checks of compose.yaml and the Dockerfile that need no Docker."""

import json
import re
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import urlsplit

import typer
import yaml

from rioni.cli.cluster.cluster import POM
from rioni.config.loading import load
from rioni.config.settings import PREFIX, SETTINGS
from rioni.http.openapi.document import document
from rioni.testing import __main__ as program_for_tests


ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
NODES = {name: service for name, service in SERVICES.items() if name.startswith("rioni-")}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_nodes_are_nodes_of_one_cluster():
    assert len(NODES) == 2
    first, second = (load(environ=node["environment"]).config for node in NODES.values())
    assert first == second
    assert first.clustered
    assert first.host == "0.0.0.0"
    assert first.allow_unauthenticated
    assert first.allowed_hosts.split(",") == [*NODES]


def test_every_variable_is_a_setting():
    named = {*re.findall(rf"{PREFIX}[A-Z_]+", DOCKERFILE + (ROOT / "compose.yaml").read_text())}
    assert named
    assert named <= {setting.variable for setting in SETTINGS.values()}


def test_servers_that_the_nodes_need_exist_and_are_waited_for():
    for node in NODES.values():
        settings = node["environment"]
        kafka, _ = settings["RIONI_KAFKA"].split(":")
        zookeeper, _ = settings["RIONI_ZOOKEEPER"].split(":")
        hosts = {kafka, zookeeper, urlsplit(settings["RIONI_DATABASE"]).hostname}
        assert hosts == node["depends_on"].keys()
        assert all(SERVICES[name]["healthcheck"] for name in hosts)


def test_postgres_allows_connections_of_all_workers():
    by_default = 100
    assert all("RIONI_WORKERS" in node["environment"] for node in NODES.values())
    configs = [load(environ=node["environment"]).config for node in NODES.values()]
    assert sum(each.workers * (each.database_connections_max + 2) for each in configs) < by_default


def test_data_are_in_separate_volumes():
    volumes = [volume for service in SERVICES.values() for volume in service.get("volumes", ())]
    names = [volume.partition(":")[0] for volume in volumes]
    assert sorted(names) == sorted(COMPOSE["volumes"])
    assert "VOLUME /data\n" in DOCKERFILE
    assert all(node["volumes"][0].endswith(":/data") for node in NODES.values())


def test_containers_stop_only_after_the_shutdown_timeout():
    for node in NODES.values():
        config = load(environ=node["environment"]).config
        assert int(node["stop_grace_period"].removesuffix("s")) > config.shutdown_timeout_s


def test_health_checks_use_existing_endpoints():
    for node in NODES.values():
        (path,) = re.findall(r"http://localhost:8080(/\w+)", node["healthcheck"]["test"][-1])
        assert path in document()["paths"]
        assert node["ports"][0].endswith(":8080")


def test_the_broker_for_tests_is_the_program_of_its_stage_and_keeps_nothing():
    service = SERVICES["broker-for-tests"]
    target = service["build"]["target"]
    stages = dict(re.findall(r"^FROM \S+(?: AS (\w+))?\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.DOTALL | re.MULTILINE))
    assert "VOLUME" not in stages[target] + stages["installed"]
    assert service["tmpfs"] == ["/tmp"]
    (program,) = json.loads(re.search(r"^ENTRYPOINT (.*)", stages[target], re.MULTILINE)[1])
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[program] == "rioni.testing.__main__:main"
    command, *options = json.loads(re.search(r"^CMD (.*)", stages[target], re.MULTILINE)[1])
    parameters = typer.main.get_command(program_for_tests.app).commands[command].params
    assert {each for each in options if each.startswith("--")} <= {name for each in parameters for name in each.opts}
    assert json.loads(re.search(r"^    CMD (.*)", stages[target], re.MULTILINE)[1])[0] == "python"
    (path,) = re.findall(r"http://localhost:8080(/\w+)", stages[target])
    assert path in document()["paths"]
    assert service["ports"][0].endswith(f":{program_for_tests.PORT}")


def test_the_servers_have_the_tested_versions():
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    versions = {
        dependency.findtext("m:artifactId", namespaces=space): dependency.findtext("m:version", namespaces=space)
        for dependency in ET.parse(POM).iterfind(".//m:dependency", space)
    }
    assert {SERVICES[f"kafka-{n}"]["image"] for n in (1, 2, 3)} == {f"apache/kafka:{versions['kafka_2.13']}"}
    assert SERVICES["zookeeper"]["image"] == f"zookeeper:{versions['zookeeper']}"


def test_kafka_brokers_are_configured_consistently():
    for number in (1, 2, 3):
        settings = SERVICES[f"kafka-{number}"]["environment"]
        assert settings["KAFKA_NODE_ID"] == number
        assert settings["KAFKA_ADVERTISED_LISTENERS"] == f"BROKER://kafka-{number}:9092"
        assert settings["KAFKA_CONTROLLER_QUORUM_VOTERS"] == "1@kafka-1:9093"
        assert ("controller" in settings["KAFKA_PROCESS_ROLES"]) == (number == 1)


def test_the_docker_context_contains_only_the_files_of_the_package():
    sent = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line != "*"}
    assert sent == {"rioni", "pyproject.toml", "README.md", "LICENSE"}
    assert all((ROOT / name).exists() for name in sent)
