"""Workers are killed while they switch timelines and add partitions: the only effects are requests without an answer.

The environment variable SEED sets the moments.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from uuid import uuid4

import httpx
import pytest

from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.server import open_stream, running_server
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.slow, pytest.mark.nightly]

KILLS = length(4, 200)
PARTITIONS_MAX = 8
KILLS_MAX = 5 * KILLS
"""In case that none of them happens in time."""
DELAY_MAX_S = 0.02
"""About as long as a change takes."""
NAME = "order.created"
LAST = -2


class Publisher(threading.Thread):
    """Publishes one event after the other to a partition; records which ones were acknowledged."""

    def __init__(self, url):
        super().__init__()
        self.url, self.enough = url, threading.Event()
        self.acknowledged, self.unknown = [], set()

    def run(self):
        number = 0
        with httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False) as client:
            while not self.enough.is_set():
                self.unknown.add(number)
                with contextlib.suppress(httpx.HTTPError):
                    if publish(client, number, "0").status_code == 200:
                        self.unknown.remove(number)
                        self.acknowledged.append(number)
                number += 1


def publish(client, number, partition):
    metadata = {"eid": str(uuid4()), "occurred_at": "2026-11-20T10:00:00Z", "partition": partition}
    return client.post(f"/event-types/{NAME}/events", json=[{"order_id": str(number), "metadata": metadata}])


def switch(client, _partitions):
    return client.post(f"/event-types/{NAME}/timelines", json={"storage_id": "default"})


def repartition(client, partitions):
    count = min(partitions + 1, PARTITIONS_MAX)
    return client.put(f"/event-types/{NAME}/partition-count", json={"partition_count": count})


def until_done(url, change):
    """Request a change until it is made, over its own connection; failed requests are repeated."""

    def done():
        with contextlib.suppress(httpx.HTTPError), httpx.Client(base_url=url, timeout=WAIT_S, verify=False) as client:
            response = change(client)
            assert response.is_success or response.status_code in (409, 503), response.text
            return response if response.is_success else None

    return wait_until(done)


class Attempt(threading.Thread):
    """Requests a change once; its connection is open before it starts."""

    def __init__(self, client, change, partitions):
        super().__init__()
        self.client, self.change, self.partitions = client, change, partitions
        self.interrupted = False

    def run(self):
        try:
            self.change(self.client, self.partitions)
        except httpx.HTTPError:
            self.interrupted = True


def kill_during(server, change, partitions, chance):
    """Kill one worker or all during a change; return whether the change was not answered."""
    with httpx.Client(base_url=server.url, timeout=WAIT_S, verify=False) as client:
        with contextlib.suppress(httpx.HTTPError):  # the other worker may just be dying
            client.get("/health")
        attempt = Attempt(client, change, partitions)
        attempt.start()
        time.sleep(chance.uniform(0, DELAY_MAX_S))
        workers = server.workers()
        for worker in chance.sample(workers, chance.randint(1, len(workers))):
            os.kill(worker, signal.SIGKILL)
        attempt.join()
    return attempt.interrupted


def read(client, partition, enough):
    """The numbers of the events of a partition, from its beginning."""
    cursors = json.dumps([{"partition": partition, "offset": "BEGIN"}])
    path = f"/event-types/{NAME}/events?batch_flush_timeout=1&batch_limit=100"
    with open_stream(client, path, headers={"X-Nakadi-Cursors": cursors}) as stream:
        return numbers(stream.events_until(lambda events: enough(numbers(events)), "the events that were acknowledged"))


def numbers(events):
    return [int(each["order_id"]) for each in events]


def audit_entries(data):
    """The entries of the audit trail about the event type."""
    command = [sys.executable, "-m", "rioni", "audit", "--format", "jsonl", "--data", str(data), "--resource", NAME]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def check_audit_entries(entries, timelines, partitions):
    """The trail contains everything from the creation through each switch to the current state."""
    assert [each["topic"] for each in entries[:2]] == ["event-type.created", "timeline.opened"]
    closed = [each["topic"] for each in entries].count("timeline.close-started")
    assert closed == len(timelines) - 1, "what was about to be closed is closed"
    changes = [each for each in entries if each["topic"].startswith("timeline.")]
    assert all(earlier["after"] == later["before"] for earlier, later in pairwise(changes)), "a change is missing"
    last = changes[-1]["after"]
    assert [each["id"] for each in last["timelines"]] == [each["id"] for each in timelines]
    assert "switch" not in last
    assert last["timelines"][-1]["partitions"] == partitions
    steps = {"timeline.repartitioned", "timeline.close-started"}
    switches = [each["topic"] for each in changes[1:] if each["topic"] not in steps]
    assert set(switches[::2]) == {"timeline.switch-started"}
    assert set(switches[1::2]) <= {"timeline.switched", "timeline.switch-aborted"}
    assert switches.count("timeline.switched") == len(timelines) - 1


def change_and_kill(server, chance):
    """Return the number of partitions in the end, and how many changes were interrupted."""
    partitions, interrupted, kill = 1, 0, 0
    while kill < KILLS or (not interrupted and kill < KILLS_MAX):
        change = (switch, repartition)[kill % 2]
        interrupted += kill_during(server, change, partitions, chance)
        # Whatever its outcome, the change can be made now, and events be published.
        until_done(server.url, lambda client, change=change, count=partitions: change(client, count))
        until_done(server.url, lambda client: switch(client, 0))
        found = until_done(server.url, lambda client: client.get(f"/event-types/{NAME}/partitions")).json()
        partitions = len(found)
        until_done(server.url, lambda client, last=str(partitions - 1): publish(client, -1, last))
        kill += 1
    return partitions, interrupted


def test_workers_that_die_during_switches_lose_duplicate_and_lock_nothing(tmp_path):
    data, chance = tmp_path / "data", random.Random(os.environ.get("SEED", "1"))
    with running_server(data, "--workers", "2") as server, server.client() as client:
        body = event_type_body(name=NAME, partition_strategy="user_defined")
        assert client.post("/event-types", json=body).is_success
        publisher = Publisher(server.url)
        publisher.start()
        try:
            partitions, interrupted = change_and_kill(server, chance)
        finally:
            publisher.enough.set()
            publisher.join()
        until_done(server.url, lambda client: publish(client, LAST, "0"))
        found = [number for number in read(client, "0", lambda seen: LAST in seen) if number >= 0]
        timelines = client.get(f"/event-types/{NAME}/timelines").json()
    assert interrupted, "no kill came in time"
    assert found == sorted(set(found)), "an event came twice or out of order"
    assert set(publisher.acknowledged) <= set(found) <= set(publisher.acknowledged) | publisher.unknown
    assert [each["order"] for each in timelines] == list(range(1, len(timelines) + 1))
    assert len(timelines) > KILLS
    check_audit_entries(audit_entries(data), timelines, partitions)
