"""Acknowledged events survive `kill -9` of the whole server at any moment, in order, over HTTP."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid

import httpx
import pytest

from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import count_events, open_stream, running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.slow, pytest.mark.nightly]

KILLS = length(2, 100)
BATCH_KILLS = length(1, 30)
BATCH = 1_000
PUBLISHERS = 4
PARTITIONS = 3
NAME = "order.created"
SCHEMA = '{"properties":{"order_id":{"type":"string"},"number":{"type":"integer"}},"required":["order_id","number"]}'


class Publisher(threading.Thread):
    """Publishes numbered events of one key until the server is killed; records which ones were acknowledged."""

    def __init__(self, url: str, key: str, first: int) -> None:
        super().__init__()
        self.url, self.key, self.next = url, key, first
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []

    def run(self) -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False) as client,
        ):
            while True:
                numbers = list(range(self.next, self.next + 5))
                self.next += 5
                self.unknown = numbers
                body = [
                    {
                        "order_id": self.key,
                        "number": number,
                        "metadata": {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"},
                    }
                    for number in numbers
                ]
                if client.post(f"/event-types/{NAME}/events", json=body).status_code == 200:
                    self.acknowledged += numbers
                    self.unknown = []


def create(client):
    body = event_type_body(
        name=NAME,
        partition_strategy="hash",
        partition_key_fields=["order_id"],
        schema={"type": "json_schema", "schema": SCHEMA},
        **partitions(PARTITIONS),
    )
    assert client.post("/event-types", json=body).status_code == 201


def stored(client):
    """For each key the numbers of its events, in the order in which they are read."""
    total = count_events(client, NAME)
    if not total:
        return {}
    cursors = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(PARTITIONS)])
    path = f"/event-types/{NAME}/events?batch_limit=100&batch_flush_timeout=1"
    found: dict[str, list[int]] = {}
    with open_stream(client, path, headers={"X-Nakadi-Cursors": cursors}) as stream:
        events = stream.events(total)
    assert len(events) == total
    for each in events:
        found.setdefault(each["order_id"], []).append(each["number"])
    return found


def test_no_acknowledged_event_is_lost_and_order_is_kept_despite_kills(tmp_path):
    data, chance = tmp_path / "data", random.Random(os.environ.get("SEED", "1"))
    keys = [f"key-{number}" for number in range(PUBLISHERS)]
    acknowledged: dict[str, list[int]] = {key: [] for key in keys}
    unknown: dict[str, set[int]] = {key: set() for key in keys}
    following = dict.fromkeys(keys, 0)
    for kill in range(KILLS):
        with running_server(data, "--workers", "2") as server:
            with server.client() as client:
                if kill == 0:
                    create(client)
                publishers = [Publisher(server.url, key, following[key]) for key in keys]
                for publisher in publishers:
                    publisher.start()
                if kill % 2 == 0:
                    # The other kills may happen before anything is stored.
                    wait_until(publishers[0].acknowledged.copy)
                time.sleep(chance.uniform(0.05, 0.6))
                server.kill()
            for publisher in publishers:
                publisher.join()
                acknowledged[publisher.key] += publisher.acknowledged
                unknown[publisher.key] |= set(publisher.unknown)
                following[publisher.key] = publisher.next
    with running_server(data) as server, server.client() as client:
        found = stored(client)
    assert any(acknowledged.values())
    for key in keys:
        numbers = found.get(key, [])
        assert numbers == sorted(set(numbers)), "an event came twice or out of order"
        assert set(acknowledged[key]) <= set(numbers) <= set(acknowledged[key]) | unknown[key]
    verified = subprocess.run(
        [sys.executable, "-m", "rioni", "verify", "--data", str(data)], capture_output=True, text=True, check=False
    )
    assert verified.returncode == 0, verified.stdout


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_batch_that_a_kill_has_cut_off_is_stored_once_by_its_key(tmp_path, workers):
    """Reference publishing#unanswered-requests: whatever was stored of it, the same request makes it whole."""
    chance = random.Random(os.environ.get("SEED", "1"))
    path = f"/event-types/{NAME}/events"
    for batches in range(1, BATCH_KILLS + 1):
        body = [
            {
                "order_id": f"key-{number % 16}",
                "number": number,
                "metadata": {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"},
            }
            for number in range(BATCH)
        ]
        request = {"json": body, "headers": {"Idempotency-Key": f'"{batches}"'}}
        with running_server(tmp_path / "data", "--workers", workers) as server, server.client() as client:
            if batches == 1:
                create(client)
            publisher = threading.Thread(target=publish_until_killed, args=(server.url + path, request))
            publisher.start()
            time.sleep(chance.uniform(0.0, 0.2))
            server.kill()
            publisher.join()
        with running_server(tmp_path / "data", "--workers", workers) as server, server.client() as client:
            for _ in range(2):
                assert client.post(path, **request).status_code == 200
                assert count_events(client, NAME) == batches * BATCH


def publish_until_killed(url, request):
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(url, **request, timeout=WAIT_S)
