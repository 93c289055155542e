"""The memory of a worker stays bounded, whatever clients define, ask for, and do not read."""

import json
import re
import uuid
from pathlib import Path

import pytest

from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.server import running_server


pytestmark = pytest.mark.slow

MEMBERS = 2_500
"""Of a schema of 200 kB, which takes 8 MB and more when it is compiled."""
EVENT_TYPES = 16


@pytest.fixture
def server(tmp_path):
    options = {"RIONI_COMPILED_SCHEMAS_BYTES_MAX": "20000000", "RIONI_CACHE_BYTES_MAX": "1000000"}
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
