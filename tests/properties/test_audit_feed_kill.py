"""Every administrative change is published in the audit log exactly once, however often the server is killed."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from uuid import UUID, uuid4

import httpx
import pytest

from rioni.domain.system.system_events import derived_eid
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import count_events, open_stream, running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.slow, pytest.mark.nightly]

KILLS = length(2, 50)
LOG = "nakadi.audit.log"
UNREPORTED = {
    "timeline.deleted",
    "topic-creation.started",
    "topic-creation.ended",
    "topic.abandoned",
    "topic.deleted",
    "subscription-key.claimed",
    "log-keys.added",
    "event-chains.anchored",
}


class Administrator(threading.Thread):
    """Changes settings and event types until the server is killed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.answers = 0

    def run(self) -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False) as client,
        ):
            while True:
                name = f"test.{uuid4().hex[:8]}"
                for method, path, body in (
                    ("PUT", f"/settings/blacklist/CONSUMER_APP/{name}", None),
                    ("POST", "/event-types", event_type_body(name=name)),
                    ("DELETE", f"/settings/blacklist/CONSUMER_APP/{name}", None),
                    ("DELETE", f"/event-types/{name}", None),
                ):
                    client.request(method, path, json=body)
                    self.answers += 1


def answers(administrators: list[Administrator]) -> int:
    return sum(administrator.answers for administrator in administrators)


def expected_eids(data) -> list[str]:
    """The expected events according to the internal log."""
    command = [sys.executable, "-m", "rioni", "audit", "--format", "jsonl", "--data", str(data)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    entries = [json.loads(line) for line in lines]
    switched = next(index for index, entry in enumerate(entries) if entry["topic"] == "settings.feature-switched")
    return [
        derived_eid(UUID(entry["command_id"]), f"audit:{entry['position']}")
        for entry in entries[switched:]
        if entry["topic"] not in UNREPORTED
    ]


def test_every_change_is_published_once_despite_kills(tmp_path):
    data, chance = tmp_path / "data", random.Random(os.environ.get("SEED", "1"))
    for _ in range(KILLS):
        with running_server(data, "--workers", "2") as server:
            with server.client() as client:
                client.post("/settings/features", json={"feature": "audit_log_collection", "enabled": True})
            administrators = [Administrator(server.url) for _ in range(3)]
            for administrator in administrators:
                administrator.start()
            wanted = chance.randint(5, 60)
            wait_until(lambda administrators=administrators, wanted=wanted: answers(administrators) >= wanted)
            server.kill()
            for administrator in administrators:
                administrator.join()
    with running_server(data, "--workers", "2") as server, server.client() as client:
        body = {"owning_application": "auditor", "event_types": [LOG], "read_from": "begin"}
        subscription = client.post("/subscriptions", json=body).json()["id"]
        expected = expected_eids(data)
        query = "batch_limit=100&max_uncommitted_events=1000000&batch_flush_timeout=1"
        path = f"/subscriptions/{subscription}/events?{query}"
        with open_stream(client, path) as stream:
            eids = [event["metadata"]["eid"] for event in stream.events(len(expected))]
        stored = count_events(client, LOG)
    assert len(expected) > 4 * KILLS
    assert sorted(eids) == sorted(expected)
    assert stored == len(expected)
