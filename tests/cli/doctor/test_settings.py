from pathlib import Path

import pytest

from rioni.cli.doctor.machine import InstalledPackages, Memory
from rioni.cli.doctor.settings import NamedServer, SecretFile, SettingsFacts
from rioni.config.settings import Config
from rioni.wire.administration import Feature
from tests.support.doctor_cases import Cases, check_healthy, check_sick, error, healthy, sick, warning


GIB = 2**30
OPEN = {"host": "0.0.0.0", "auth_mode": "basic", "default_admin": "service:operations"}
CLUSTER = {
    "zookeeper": "z1:2181,z2:2181,z3:2181/rioni",
    "kafka": "k1:9092,k2:9092",
    "database": "postgresql://db/rioni",
    "zookeeper_options": Path("zookeeper.toml"),
}
KPIS = [Feature(feature="kpi_collection", enabled=True)]
INSTALLED = InstalledPackages("0.1.1", "3.11", "3.50", {}, drivers=["confluent_kafka", "kazoo", "psycopg"])
HOST = SettingsFacts("environment", values={"host": ("0.0.0.0", "")})
CASES = {
    "valid-settings": Cases(
        [[SettingsFacts("environment")]],
        [error("port must be", SettingsFacts("", "rioni.toml: port must be a whole number"))],
    ),
    "open-access": Cases(
        [[Config(), HOST], [Config(**OPEN), HOST]],
        [error("can reach 0.0.0.0: everybody may", Config(host="0.0.0.0", allow_unauthenticated=True), HOST)],
    ),
    "default-administrator": Cases(
        [[Config()], [Config(**OPEN)]],
        [error("everybody knows", Config(**OPEN | {"default_admin": "service:stups_nakadi"}))],
    ),
    "tokens-in-clear": Cases(
        [[Config(), HOST], [Config(**OPEN, tls_certificate=Path("c"), tls_key=Path("k")), HOST]],
        [warning("tokens on 0.0.0.0 without TLS", Config(**OPEN), HOST)],
    ),
    "files-with-secrets": Cases(
        [[[SecretFile("kafka_options", "k.toml", 0o640), SecretFile("log_signing_key", "key", 0o600)]]],
        [
            error("other users may use k.toml (0644)", [SecretFile("kafka_options", "k.toml", 0o644)]),
            error("log_signing_key", [SecretFile("log_signing_key", "key", 0o640)]),
            warning("No such file", [SecretFile("tls_key", "key", error="No such file or directory")]),
        ],
    ),
    "pseudonyms": Cases(
        [[Config(), []], [Config(pseudonym_salt="Zm9v"), KPIS]], [warning("default salt", Config(), KPIS)]
    ),
    "cluster-settings": Cases(
        [[Config()], [Config(**CLUSTER)]],
        [
            warning("kafka names a single server", Config(**CLUSTER | {"kafka": "k1:9092"})),
            warning("zookeeper names a single server", Config(**CLUSTER | {"zookeeper": "z1:2181/rioni"})),
            warning("Every client that reaches ZooKeeper", Config(**CLUSTER | {"zookeeper_options": None})),
        ],
    ),
    "memory-budget": Cases(
        [[Config(workers=2), Memory(16 * GIB, 8 * GIB)]],
        [
            warning("there are 1.0 GiB", Config(workers=2), Memory(GIB, GIB)),
            warning("there are 0.5 GiB", Config(workers=2), Memory(16 * GIB, GIB, limit_bytes=GIB // 2)),
        ],
    ),
    "debug-log": Cases([[Config()]], [warning("debug", Config(log_level="debug"))]),
    "reachable-servers": Cases(
        [[[NamedServer("kafka", "k:9092")]]],
        [
            error(
                "kafka: no connection to k:9092: Connection refused.",
                [NamedServer("kafka", "k:9092", "Connection refused")],
            )
        ],
    ),
    "drivers": Cases(
        [[Config(), InstalledPackages("", "", "", {})], [Config(**CLUSTER), INSTALLED]],
        [error("confluent_kafka", Config(kafka="k:9092"), InstalledPackages("", "", "", {}, drivers=["psycopg"]))],
    ),
}


@pytest.mark.parametrize(("name", "facts"), healthy(CASES))
def test_nothing_is_found_in_healthy_settings(name, facts):
    check_healthy(name, facts)


@pytest.mark.parametrize(("name", "case"), sick(CASES))
def test_what_is_unsafe_in_settings_is_found(name, case):
    check_sick(name, case)
