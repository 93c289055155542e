"""Subscriptions keep their promises while consumers and workers are killed and suspended, over real HTTP."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.campaigns import length
from tests.support.history_checker import History, Observation, Reset, violations
from tests.support.recording import NO_ANSWER, Consumers, Publisher, position_of, read
from tests.support.server import RunningServer, running_server
from tests.support.waiting import wait_until


pytestmark = pytest.mark.slow

CHAOS_S = length(15.0, 900.0)
DRAIN_S = 60
CONSUMERS = 4
PARTITIONS = 6
IDLE = 300
NAME = "order.created"
SCHEMA = '{"properties":{"number":{"type":"integer"}},"required":["number"]}'


class Chaos:
    """Random faults of a subscription and its consumers."""

    def __init__(self, server: RunningServer, client: httpx.Client, folder: Path) -> None:
        self.server, self.client = server, client
        self.chance = random.Random(os.environ.get("TEST_SEED", "1"))
        self.history = History(acknowledged={})
        self.kills: list[tuple[float, float]] = []
        """When workers were killed, and when all clients had noticed."""
        body = {"owning_application": "chaos", "event_types": [NAME], "read_from": "begin"}
        self.subscription_id = client.post("/subscriptions", json=body).json()["id"]
        self.consumers = Consumers([server.url], self.subscription_id, folder)

    def happen(self) -> None:
        """Run one random fault."""
        time.sleep(self.chance.uniform(0.1, 0.5))
        with contextlib.suppress(*NO_ANSWER):
            self.observe()
        match self.chance.choice(["kill", "kill", "pause", "pause", "worker", "reset", "close"]):
            case "kill":
                self.consumers.kill(self.chance)
            case "pause":
                self.consumers.pause(self.chance)
            case "worker":
                self.kill_worker()
            case "reset":
                self.reset()
            case "close":
                with contextlib.suppress(*NO_ANSWER):
                    self.close_stream()

    def kill_worker(self) -> None:
        pid, begun = self.chance.choice(self.server.workers()), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in self.server.workers() and len(self.server.workers()) == 2)
        # Broken connections and dead sessions may be noticed a little later.
        self.kills.append((begun, time.monotonic() + 2))

    def reset(self) -> None:
        """Move the cursors of some partitions back a little."""
        chosen = [each for each in self.positions() if self.chance.random() < 0.5]
        positions = {each: max(-1, self.positions()[each] - self.chance.randrange(10)) for each in chosen}
        cursors = [
            {"event_type": NAME, "partition": each, "offset": f"001-0001-{position:018d}" if position >= 0 else "BEGIN"}
            for each, position in positions.items()
        ]
        begun, status = time.monotonic(), 0
        with contextlib.suppress(*NO_ANSWER):
            path = f"/subscriptions/{self.subscription_id}/cursors"
            status = self.client.patch(path, json={"items": cursors}).status_code
        ended = time.monotonic() if status == 204 else float("inf")
        self.history.resets.append(Reset(begun=begun, ended=ended, positions=positions))

    def positions(self) -> Mapping[str, int]:
        """The cursors as they were observed last."""
        return self.history.observations[-1].positions if self.history.observations else {}

    def observe(self) -> None:
        begun = time.monotonic()
        items = self.client.get(f"/subscriptions/{self.subscription_id}/cursors").json()["items"]
        positions = {item["partition"]: position_of(item["offset"]) for item in items}
        self.history.observations.append(Observation(begun=begun, ended=time.monotonic(), positions=positions))

    def close_stream(self) -> None:
        if owned := sorted(owners(self.client, self.subscription_id)):
            stream_id = self.chance.choice(owned)
            self.client.delete(f"/subscriptions/{self.subscription_id}/streams/{stream_id}")

    def lag(self) -> int:
        (item,) = self.client.get(f"/subscriptions/{self.subscription_id}/stats").json()["items"]
        return sum(each["unconsumed_events"] for each in item["partitions"])


@pytest.mark.nightly
def test_promises_hold_while_consumers_and_workers_die_and_are_suspended(tmp_path):
    with running_server(tmp_path / "data", "--workers", "2") as server, server.client() as client:
        body = event_type_body(
            name=NAME,
            partition_strategy="user_defined",
            schema={"type": "json_schema", "schema": SCHEMA},
            **partitions(PARTITIONS),
        )
        assert client.post("/event-types", json=body).status_code == 201
        chaos, stop = Chaos(server, client, tmp_path), threading.Event()
        publishers = [Publisher([server.url], NAME, str(number), stop) for number in range(PARTITIONS)]
        try:
            for _ in range(CONSUMERS):
                chaos.consumers.start()
            for publisher in publishers:
                publisher.start()
            until = time.monotonic() + CHAOS_S
            while time.monotonic() < until:
                chaos.happen()
            stop.set()
            for publisher in publishers:
                publisher.join()
            wait_until(lambda: chaos.lag() == 0)
            chaos.observe()
        finally:
            stop.set()
            chaos.consumers.end()
    history = chaos.history
    history.acknowledged = {publisher.partition: publisher.acknowledged for publisher in publishers}
    read(chaos.consumers.files, chaos.kills, history)
    assert sum(map(len, history.acknowledged.values())) > 100
    assert len(history.streams) > CONSUMERS
    assert violations(history) == []


def test_hundreds_of_idle_streams_release_everything_when_their_sockets_close(tmp_path):
    settings = ("PARTITIONS_MAX", "SUBSCRIPTION_PARTITIONS_MAX", "STREAMS_PER_CLIENT_MAX")
    environment = {f"RIONI_{name}": str(IDLE) for name in settings}
    with (
        running_server(tmp_path / "data", "--workers", "2", environment=environment) as server,
        server.client() as client,
        contextlib.ExitStack() as stack,
    ):
        assert client.post("/event-types", json=event_type_body(name=NAME, **partitions(IDLE))).status_code == 201
        body = {"owning_application": "idle", "event_types": [NAME]}
        subscription_id = client.post("/subscriptions", json=body).json()["id"]
        path = f"/subscriptions/{subscription_id}/events"
        opened = open_all(server, stack, path)
        wait_until(lambda: sorted(owners(client, subscription_id).values()) == [1] * IDLE)
        assert client.get(path).status_code == 429
        for connection in opened:
            connection.close()
        wait_until(lambda: not owners(client, subscription_id))
        # All of them open again: no slot of the subscription or of the client has been lost.
        open_all(server, stack, path)


def open_all(server: RunningServer, stack: contextlib.ExitStack, path: str) -> list[socket.socket]:
    """Open the maximum number of streams, all at once."""
    parts = urlsplit(server.url)
    opened = []
    for _ in range(IDLE):
        connection = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=DRAIN_S))
        connection.sendall(f"GET {path}?batch_flush_timeout=600 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        opened.append(connection)
    for connection in opened:
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
    return opened


def owners(client: httpx.Client, subscription_id: str) -> dict[str, int]:
    """The number of partitions of each stream."""
    (item,) = client.get(f"/subscriptions/{subscription_id}/stats").json()["items"]
    counts: dict[str, int] = defaultdict(int)
    for each in item["partitions"]:
        if each["stream_id"]:
            counts[each["stream_id"]] += 1
    return counts
