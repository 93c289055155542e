"""The memory of a worker stays bounded, whatever clients define, ask for, and do not read."""

import contextlib
import json
import re
import socket
import uuid
from pathlib import Path

import pytest

from rioni.http.answers import HELD_BYTES
from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.slow

MEMBERS = 2_500
"""Number of members that make a schema of 200 kB, which takes 8 MB or more when it is compiled."""
EVENT_TYPES = 16
CREATED, CONNECTIONS = 50, 30


@pytest.fixture
def server(tmp_path):
    options = {
        "RIONI_COMPILED_SCHEMAS_BYTES_MAX": "20000000",
        "RIONI_CACHE_BYTES_MAX": "1000000",
        "RIONI_BODY_TIMEOUT_S": "600",
    }
    with running_server(tmp_path, "--workers", "1", environment=options) as server:
        yield server


def resident_bytes(server):
    (worker,) = server.workers()
    (kilobytes,) = re.findall(r"VmRSS:\s+([0-9]+) kB", Path(f"/proc/{worker}/status").read_text())
    return int(kilobytes) * 1_000


def create_large(client, name):
    properties = {f"a_member_with_the_number_{number}": {"type": "string"} for number in range(MEMBERS)}
    schema = {"type": "json_schema", "schema": json.dumps({"properties": properties, "description": "x" * 80_000})}
    assert client.post("/event-types", json=event_type_body(name=name, schema=schema)).status_code == 201
    return name


def publish_to(client, name):
    body = event() | {"metadata": event()["metadata"] | {"eid": str(uuid.uuid4())}}
    del body["order_id"]
    assert client.post(f"/event-types/{name}/events", json=[body]).status_code == 200


def test_many_large_schemas_that_are_published_by_take_a_bounded_memory_of_a_worker(server):
    with server.client() as client:
        names = [create_large(client, f"large.number-{number}") for number in range(EVENT_TYPES)]
        publish_to(client, names[0])
        before = resident_bytes(server)
        for name in names * 2:
            publish_to(client, name)
        # Kept for ever they took 130 MB.
        assert resident_bytes(server) - before < 70_000_000


def create_long(client, name):
    """An event type whose schema is a long text, which is cheap to check."""
    schema = {"type": "json_schema", "schema": json.dumps({"description": "x" * 250_000})}
    assert client.post("/event-types", json=event_type_body(name=name, schema=schema)).status_code == 201


def unread(server, path):
    """A connection on which an answer was asked for, and nothing of it is read."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    return connection


LONG_LISTS = (
    "/event-types",
    "/event-types?owning_application=shop",
    "/event-types?as_of={position}",
    "/event-types/long.number-0/schemas?limit=1000",
)


def test_lists_that_nobody_reads_take_a_bounded_memory_and_others_are_answered(server):
    with server.client() as client:
        for number in range(CREATED):
            create_long(client, f"long.number-{number}")
        for number in range(CREATED):
            schema = {"type": "json_schema", "schema": json.dumps({"description": f"{number} ".ljust(250_000, "x")})}
            assert client.post("/event-types/long.number-0/schemas", json=schema).status_code == 201
        (newest,) = client.get("/audit?limit=1").json()["items"]
        for path in (each.format(position=newest["position"]) for each in LONG_LISTS):
            assert len(client.get(path).content) > CREATED * 250_000
            before = resident_bytes(server)
            with contextlib.ExitStack() as connections:
                for _ in range(CONNECTIONS):
                    connections.enter_context(unread(server, path))
                wait_until(lambda: server.metric("rioni_answer_bytes") >= CONNECTIONS * HELD_BYTES)
                assert client.get("/event-types/long.number-1").status_code == 200
                # All of them in memory would be 375 MB.
                assert resident_bytes(server) - before < 100_000_000
            wait_until(lambda: server.metric("rioni_answer_bytes") == 0)
