import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from rioni.cli.cluster.cluster import fetch_jars, missing_programs
from rioni.cli.cluster.servers import CLASSES, FEATURES, Server
from rioni.domain.errors import Unavailable
from tests.support.waiting import WAIT_S


needs_java = pytest.mark.skipif(bool(missing_programs()), reason=missing_programs())


@pytest.mark.kafka
def test_a_broker_answers_and_continues_after_it_was_killed(other_kafka_cluster):
    admin = AdminClient({"bootstrap.servers": other_kafka_cluster.kafka})
    assert list(admin.list_topics(timeout=WAIT_S).brokers) == [1]
    (broker,) = other_kafka_cluster.kafkas
    broker.kill()
    assert not broker.alive
    broker.start()
    broker.wait()
    assert list(admin.list_topics(timeout=WAIT_S).brokers) == [1]


@pytest.mark.kafka
def test_a_broker_starts_with_the_classes_and_features_that_a_first_start_has_left(other_kafka_cluster):
    (broker,) = other_kafka_cluster.kafkas
    pids = [path.parent.name for path in Path("/proc").glob("[0-9]*/cwd") if _leads_to(path, broker.folder)]
    assert len(pids) == 1
    assert CLASSES in Path(f"/proc/{pids[0]}/maps").read_text()
    assert (
        f"from bootstrap source 'the binary bootstrap metadata file: {broker.folder / 'data' / FEATURES}'"
        in (broker.folder / "output.txt").read_text()
    )


def _leads_to(link: Path, folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return link.readlink() == folder
    return False


@pytest.mark.kafka
@pytest.mark.postgres
@needs_java
@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGHUP])
def test_the_command_prints_the_addresses_of_the_servers_and_ends_them_on_a_signal(asked):
    command = [sys.executable, "-m", "rioni", "cluster", "up"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = "".join(iter(process.stderr.readline, "# Ctrl-C stops everything.\n"))
        assert process.poll() is None, said
        children = [int(pid) for pid in _children(process.pid)]
        process.send_signal(asked)
        output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    database, kafka, key, zookeeper = output.splitlines()
    assert database.startswith("export RIONI_DATABASE='postgresql+psycopg://")
    assert kafka.startswith("export RIONI_KAFKA='127.0.0.1:")
    assert key.startswith("export RIONI_LOG_SIGNING_KEY='/")
    assert zookeeper.startswith("export RIONI_ZOOKEEPER='127.0.0.1:")
    assert children
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(database.split("'")[1].replace("+psycopg", ""))


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_a_server_that_ends_at_once_is_reported_with_its_output(tmp_path):
    server = Server("The server", ["sh", "-c", "echo no such disk; exit 1"], tmp_path, ready=lambda: False)
    server.start()
    with pytest.raises(Unavailable, match=r"The server did not start:\nno such disk"):
        server.wait()


def test_missing_programs_are_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert missing_programs() == "This needs Java 17 or newer and Maven on the path."
    with pytest.raises(Unavailable, match="Java 17"):
        fetch_jars()
