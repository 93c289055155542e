"""The server as an operator uses it: starting, failing to start, stopping.

Source: reference operations#lifecycle.
"""

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from urllib.parse import urlsplit

import httpx
import pytest

from rioni.client import Client, EventType, Schema
from rioni.config.settings import Config
from rioni.installation.acceptance import accept_loss
from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.commands import run_command
from tests.support.server import PROMETHEUS, count_events, open_stream, refused_start, running_server
from tests.support.tcp_proxy import proxies_to
from tests.support.waiting import WAIT_S, wait_until


PROGRAM = ("-m", "rioni")
"""Runs the program itself; most other tests fork their servers."""
ANY = {"type": "json_schema", "schema": "{}"}

pytestmark = pytest.mark.slow


def serve(*options, **environment):
    """Run `rioni serve` until it ends by itself; returns its exit code and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "rioni", "serve", *options],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


def test_a_port_in_use_is_named_with_instructions(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = serve("--port", port, "--data", str(tmp_path / "data"))
    assert code == 2
    assert said == (
        f"Error: 127.0.0.1:{port} is in use by another process. Stop it, or name another port: --port or RIONI_PORT.\n"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "broker.example.org"])
def test_a_broker_without_access_control_must_be_requested_explicitly(tmp_path, host):
    said = refused_start(tmp_path / "data", "--host", host)
    assert said.startswith(f"Error: host {host} can be reached from other machines, and auth_mode is off")
    assert "--allow-unauthenticated or RIONI_ALLOW_UNAUTHENTICATED=true" in said
    assert not (tmp_path / "data").exists()


def test_a_broker_without_access_control_logs_warnings_while_it_runs(tmp_path):
    with running_server(tmp_path / "data", "--host", "0.0.0.0", "--workers", "1", "--allow-unauthenticated") as server:
        assert any("anyone who can reach the broker has all permissions" in line for line in server.lines)
        with server.client(headers={"Host": "broker.example.org"}) as client:
            access = client.get("/readyz").json()["checks"]["access"]
            assert access["status"] == "warning"
            assert "auth_mode is off" in access["warnings"][0]


def test_the_address_that_is_printed_is_one_that_clients_take(tmp_path, monkeypatch, capsys):
    """An address of version 6 as well, for which URLs have brackets."""
    for number, (host, shown) in enumerate((("::1", "[::1]"), ("127.0.0.1", "127.0.0.1"))):
        with running_server(tmp_path / str(number), "--host", host, "--workers", "1") as server:
            assert server.url.startswith(f"http://{shown}:")
            assert httpx.get(f"{server.url}/health", timeout=WAIT_S).status_code == 200
            with Client(server.url) as client:
                client.event_types.create(EventType(name="printed", owning_application="shop", schema=Schema.json({})))
            code, said, _ = run_command(monkeypatch, capsys, "--url", server.url, "event-types", "list")
            assert (code, "printed" in said) == (0, True)


def test_a_data_directory_has_only_one_server(tmp_path):
    with running_server(tmp_path / "data", program=PROGRAM) as server:
        code, said = serve("--port", "0", "--data", str(tmp_path / "data"))
        assert code == 2
        assert f"is in use by the process {server.process.pid}" in said


@pytest.mark.postgres
def test_an_unusable_zookeeper_is_named_before_requests_are_served(tmp_path, postgres_url):
    (tmp_path / "options.toml").write_text('user = "rioni"')
    cluster = {"RIONI_DATABASE": postgres_url(), "RIONI_KAFKA": "127.0.0.1:1", "RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "2"}
    for settings, error in (
        (
            {"RIONI_ZOOKEEPER": "127.0.0.1:1"},
            "Error: ZooKeeper at 127.0.0.1:1 can't be used: no server can be reached.",
        ),
        ({"RIONI_ZOOKEEPER": "127.0.0.1:port"}, "Error: The setting `zookeeper` can't be used: '127.0.0.1:port'"),
        (
            {"RIONI_ZOOKEEPER": "127.0.0.1:1", "RIONI_ZOOKEEPER_OPTIONS": str(tmp_path / "options.toml")},
            f"Error: zookeeper_options: {tmp_path}/options.toml sets user, which needs password.",
        ),
    ):
        said = refused_start(tmp_path / "data", environment=cluster | settings)
        assert "Traceback" not in said
        assert "Rioni serves" not in said
        assert said.splitlines()[-1].startswith(error)


@pytest.mark.postgres
@pytest.mark.zookeeper
def test_a_worker_that_dies_while_zookeeper_is_down_ends_no_other(tmp_path, postgres_url, zookeeper_cluster):
    with proxies_to(zookeeper_cluster.zookeeper) as (way,):
        settings = {"ZOOKEEPER": f"{way.address}/{tmp_path.name}", "DATABASE": postgres_url(), "KAFKA": "127.0.0.1:1"}
        settings["ZOOKEEPER_SESSION_TIMEOUT_S"] = "2"
        environment = {f"RIONI_{name}": value for name, value in settings.items()}
        with running_server(tmp_path / "data", "--workers", "2", environment=environment) as server:

            def begun() -> int:
                return httpx.get(f"{server.url}/metrics", timeout=WAIT_S, headers=PROMETHEUS).text.count(
                    "rioni_worker_info{"
                )

            wait_until(lambda: begun() == 2)
            way.cut()
            killed, other = server.workers()
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: [line for line in server.lines if "worker failed to start" in line])
            assert begun() == 1
            way.heal()
            wait_until(lambda: begun() == 2)
            assert other in server.workers()


def test_a_foreign_directory_is_left_unchanged(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    said = refused_start(tmp_path)
    assert "is not a data directory of Rioni, and it is not empty" in said
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_in_place_of_the_data_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    said = refused_start(tmp_path / "file")
    assert "is not a directory" in said


@pytest.mark.parametrize(
    ("options", "environment", "hint"),
    [
        (["--prot", "1"], {}, "--port"),
        (["--workers", "0"], {}, "workers"),
        ([], {"RIONI_PROT": "1"}, "RIONI_PORT"),
        ([], {"RIONI_PORT": "x"}, "RIONI_PORT"),
    ],
)
def test_a_wrong_setting_names_the_right_one(tmp_path, options, environment, hint):
    said = refused_start(tmp_path / "data", *options, environment=environment)
    assert hint in said
    assert "Traceback" not in said


def test_settings_come_from_the_environment_and_from_a_file(tmp_path):
    file = tmp_path / "rioni.toml"
    file.write_text("partitions_default = 3\n")
    with (
        running_server(tmp_path / "data", "--config", str(file), environment={"RIONI_WORKERS": "1"}) as server,
        server.client() as client,
    ):
        assert len(server.workers()) == 1
        client.post("/event-types", json=event_type_body(name="a"))
        assert len(client.get("/event-types/a/partitions").json()) == 3


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_with_a_reason_when_the_server_is_stopped(tmp_path, sent):
    """Reference operations#shutdown."""
    running = running_server(tmp_path / "data", "--workers", "2", program=PROGRAM)
    with running as server, server.client() as client:
        client.post("/event-types", json=event_type_body(name="a"))
        body = {"owning_application": "x", "event_types": ["a"]}
        subscription_id = client.post("/subscriptions", json=body).json()["id"]
        with server.client() as other, open_stream(other, f"/subscriptions/{subscription_id}/events") as stream:
            stats = f"/subscriptions/{subscription_id}/stats"
            wait_until(lambda: '"assigned"' in client.get(stats).text)
            server.process.send_signal(sent)
            assert stream.batches()[-1]["info"] == {"debug": "Server is shutting down"}
        assert server.process.wait(WAIT_S) == 0
        assert "Traceback" not in "".join(server.lines)


def test_idle_connections_do_not_delay_the_shutdown(tmp_path):
    """Reference operations#shutdown."""
    patient = {"RIONI_SHUTDOWN_TIMEOUT_S": "600", "RIONI_KEEP_ALIVE_S": "600"}
    with running_server(tmp_path / "data", environment=patient) as server, server.client() as client:
        assert client.get("/health").text == "OK"
        assert server.stop() == 0


NARROW = """
from gevent import monkey
monkey.patch_all()
from rioni.server import processes

processes.WORKER_CONNECTIONS = 2
from rioni.__main__ import main

main()
"""
"""The broker, with workers that serve two connections at a time."""


def test_connections_without_a_request_are_closed_and_those_beyond_the_limit_wait(tmp_path):
    """Reference operations#connections."""
    impatient = {"RIONI_KEEP_ALIVE_S": "1"}
    options = {"environment": impatient, "program": ("-c", NARROW)}
    with running_server(tmp_path / "data", "--workers", "1", **options) as server, contextlib.ExitStack() as stack:
        begin_s = time.monotonic()
        address = urlsplit(server.url)
        silent, used, waiting = (
            stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=WAIT_S))
            for _ in range(3)
        )
        for connection in (used, waiting):
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert connection.recv(1_000).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - begin_s >= 1
        assert [connection.recv(1) for connection in (silent, used)] == [b""] * 2


def test_everything_is_available_again_after_a_restart(tmp_path):
    for attempt in range(2):
        with running_server(tmp_path / "data") as server, server.client() as client:
            expected = 201 if attempt == 0 else 409
            assert client.post("/event-types", json=event_type_body(name="a")).status_code == expected
            assert client.post("/event-types/a/events", json=[event()]).status_code == 200
            newest = client.get("/event-types/a/partitions/0").json()["newest_available_offset"]
            assert newest == f"001-0001-{attempt:018}"


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_an_older_events_file_is_rejected_and_its_accepted_loss_recorded(tmp_path, end):
    data, old = tmp_path / "data", tmp_path / "old.db"
    batch = [{"number": number} for number in range(10)]

    def publish(server):
        assert httpx.post(f"{server.url}/event-types/a/events", json=batch, timeout=WAIT_S).status_code == 200

    def end_of_partition(server):
        return httpx.get(f"{server.url}/event-types/a/partitions/0", timeout=WAIT_S).json()["newest_available_offset"]

    with running_server(data) as server:
        body = event_type_body(name="a", category="undefined", enrichment_strategies=[], schema=ANY)
        assert httpx.post(f"{server.url}/event-types", json=body, timeout=WAIT_S).status_code == 201
        publish(server)
        server.stop()
    shutil.copyfile(data / "events.db", old)
    with running_server(data) as server:
        publish(server)
        newest = end_of_partition(server)
        if end == "killed":
            with contextlib.closing(sqlite3.connect(data / "registry.db")) as registry:
                marked = "SELECT count(*) FROM marks WHERE name LIKE 'topic:%' AND value LIKE '[20%'"
                wait_until(lambda: registry.execute(marked).fetchone() == (1,))
            server.kill()
        else:
            server.stop()
    for path in data.glob("events.db*"):
        path.unlink()
    shutil.copyfile(old, data / "events.db")
    code, said = serve("--port", "0", "--data", str(data))
    assert code == 2
    assert "events.db is older than the registry: 1 partition end before the last recorded position: a, part" in said
    assert accept_loss(Config(data=data), "the disk died")
    with running_server(data) as server:
        assert end_of_partition(server) == newest
        publish(server)
        assert end_of_partition(server) == "001-0001-000000000000000029"


def test_a_killed_worker_is_replaced_and_nothing_is_lost(tmp_path):
    """Reference operations#worker-death."""
    running = running_server(tmp_path / "data", "--workers", "2", program=PROGRAM)
    with running as server, server.client() as client:
        client.post("/event-types", json=event_type_body(name="a"))
        assert client.post("/event-types/a/events", json=[event()]).status_code == 200
        killed = server.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

        def published():
            with contextlib.suppress(httpx.HTTPError), server.client() as other:
                return other.post("/event-types/a/events", json=[event()]).status_code == 200

        wait_until(published)
        with server.client() as other:
            assert count_events(other, "a") >= 2
        wait_until(lambda: not set(killed) & set(server.workers()))
