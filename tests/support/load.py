"""Publishers and consumers that run while event types change their storage and their partitions."""

import contextlib
import json
import sys
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import httpx

from tests.support.server import RunningServer, open_stream
from tests.support.waiting import WAIT_S, wait_until


PUBLISHERS, KEYS, BATCH = 4, 3, 4


class Publisher(threading.Thread):
    """Publishes batch after batch, and records for each of its keys what was acknowledged, in order."""

    def __init__(self, server: RunningServer, event_type: str, number: int) -> None:
        super().__init__()
        self._client, self._path, self._number = server.client(), f"/event-types/{event_type}/events", number
        self.enough = threading.Event()
        self.acknowledged: dict[str, list[str]] = defaultdict(list)
        self.count = 0
        self.refused: list[str] = []

    def run(self) -> None:
        with self._client:
            while not self.enough.is_set():
                batch = [self._event(self.count + index) for index in range(BATCH)]
                response = self._client.post(self._path, json=batch)
                if response.status_code != httpx.codes.OK:
                    self.refused.append(response.text)
                    return
                for event in batch:
                    self.acknowledged[event["order_id"]].append(event["metadata"]["eid"])
                self.count += BATCH

    def _event(self, index: int) -> dict:
        metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"}
        return {"order_id": f"{self._number}-{index % KEYS}", "metadata": metadata}


class Committed:
    """The batches that the consumers of a subscription received, in the order of their committed cursors.

    Not in the order of the responses: a consumer thread that waits for the CPU may have lost the partition by then, and
    the next one may record the following batch first. A commit is answered 204 only if it advanced the cursor.
    """

    def __init__(self) -> None:
        self._batches: dict[str, list[tuple[str, Sequence[str]]]] = defaultdict(list)
        self.wanted = sys.maxsize
        self._lock = threading.Lock()

    @property
    def complete(self) -> bool:
        with self._lock:
            return sum(len(eids) for batches in self._batches.values() for _, eids in batches) >= self.wanted

    @property
    def eids(self) -> dict[str, list[str]]:
        """The ids of events by partition."""
        with self._lock:
            return {
                partition: [eid for _, eids in sorted(batches) for eid in eids]
                for partition, batches in self._batches.items()
            }

    def add(self, cursor: Mapping[str, str], eids: Sequence[str]) -> None:
        with self._lock:
            self._batches[cursor["partition"]].append((cursor["offset"], eids))


class Consumer(threading.Thread):
    """Reads a subscription together with others until all has been committed; reconnects whenever its stream ends."""

    def __init__(self, server: RunningServer, subscription: str, committed: Committed) -> None:
        super().__init__()
        self._client, self._path, self._committed = server.client(), f"/subscriptions/{subscription}", committed

    def run(self) -> None:
        deadline_s = time.monotonic() + WAIT_S
        with self._client:
            while not self._committed.complete and time.monotonic() < deadline_s:
                # 409: an earlier session has not ended yet.
                with contextlib.suppress(AssertionError, httpx.HTTPError):
                    self._stream()

    def _stream(self) -> None:
        options = {"batch_limit": 7, "batch_flush_timeout": 1, "max_uncommitted_events": 50, "stream_timeout": 4}
        with open_stream(self._client, f"{self._path}/events", params=options) as stream:
            headers = {"X-Nakadi-StreamId": stream.stream_id}
            for batch in stream.batches_as_they_come():
                cursor, events = batch["cursor"], batch.get("events", [])
                if events:
                    items = {"items": [cursor]}
                    answer = self._client.post(f"{self._path}/cursors", json=items, headers=headers)
                    if answer.status_code != httpx.codes.NO_CONTENT:
                        return  # it is delivered again
                    self._committed.add(cursor, [each["metadata"]["eid"] for each in events])
                if self._committed.complete:
                    return


class Follower(threading.Thread):
    """Reads some partitions with one uninterrupted low-level stream until it has received as many events as wanted."""

    def __init__(self, server: RunningServer, event_type: str, partitions: Sequence[str]) -> None:
        super().__init__()
        self._client, self._path = server.client(), f"/event-types/{event_type}/events"
        self._cursors = from_begin(partitions)
        self.wanted = sys.maxsize
        self.received: dict[str, list[str]] = defaultdict(list)

    def run(self) -> None:
        options = {"batch_limit": 5, "batch_flush_timeout": 1, "stream_timeout": WAIT_S}
        with self._client, open_stream(self._client, self._path, headers=self._cursors, params=options) as stream:
            for batch in stream.batches_as_they_come():
                self.received[batch["cursor"]["partition"]] += [
                    each["metadata"]["eid"] for each in batch.get("events", [])
                ]
                if sum(map(len, self.received.values())) >= self.wanted:
                    return


class Load:
    """Four publishers, two consumers of one subscription and one low-level stream, on one event type."""

    def __init__(self, server: RunningServer, event_type: str, subscription: str, partitions: int) -> None:
        self._server, self._event_type = server, event_type
        self.committed = Committed()
        self.publishers = [Publisher(server, event_type, number) for number in range(PUBLISHERS)]
        self.follower = Follower(server, event_type, [str(number) for number in range(partitions)])
        self.consumers = [Consumer(server, subscription, self.committed) for _ in range(2)]

    @property
    def count(self) -> int:
        """How many events were acknowledged."""
        return sum(publisher.count for publisher in self.publishers)

    @property
    def refused(self) -> list[str]:
        """The unsuccessful responses to publishers; each publisher stops at its first one."""
        return [text for publisher in self.publishers for text in publisher.refused]

    def until_more(self, events: int) -> None:
        """Wait until this many more events were acknowledged."""
        wanted = self.count + events

        def acknowledged() -> bool:
            assert all(publisher.is_alive() for publisher in self.publishers), self.refused
            return self.count >= wanted

        wait_until(acknowledged)

    def check(self) -> None:
        """All acknowledged events are stored once, in the order of each key, and were delivered to all consumers."""
        expected = {key: eids for each in self.publishers for key, eids in each.acknowledged.items()}
        with self._server.client() as client:
            stored = read_back(client, self._event_type, self.count)
        flat = [eid for eids in stored.values() for eid in eids]
        acknowledged = {eid for eids in expected.values() for eid in eids}
        lost, doubled = acknowledged - set(flat), [eid for eid, count in Counter(flat).items() if count > 1]
        assert not lost, f"{len(lost)} of {self.count} are lost, {len(flat)} are there: {self._places(lost, expected)}"
        assert not doubled, f"{len(doubled)} are doubled, {self._places(doubled, expected)}"
        assert len(flat) == self.count
        for eids in stored.values():
            places = {eid: place for place, eid in enumerate(eids)}
            for key, published in expected.items():
                mine = [places[eid] for eid in published if eid in places]
                assert mine == sorted(mine), f"the events of {key} are out of order"
        for received, whose in ((self.committed.eids, "subscription"), (self.follower.received, "low-level stream")):
            for partition, eids in received.items():
                assert eids == stored[partition], _difference(whose, partition, eids, stored[partition])
        assert set(self.committed.eids) == set(stored)

    @staticmethod
    def _places(eids: Iterable[str], expected: Mapping[str, Sequence[str]]) -> list[tuple[str, int]]:
        where = {eid: (key, place) for key, published in expected.items() for place, eid in enumerate(published)}
        return sorted(where[eid] for eid in eids)[:50]

    def finish(self) -> None:
        """End the publishers and let the consumers read to the end."""
        for publisher in self.publishers:
            publisher.enough.set()
        for publisher in self.publishers:
            publisher.join()
        self.committed.wanted = self.count
        with self._server.client() as client:
            stored = read_back(client, self._event_type, self.count)
        self.follower.wanted = sum(len(stored[key]) for key in self.follower.received)
        for reader in (*self.consumers, self.follower):
            reader.join(WAIT_S)


@contextlib.contextmanager
def running_load(server: RunningServer, event_type: str, subscription: str, partitions: int) -> Iterator[Load]:
    """Publish and consume as long as the block lasts, and then until everything has been read."""
    load = Load(server, event_type, subscription, partitions)
    for thread in (*load.publishers, *load.consumers, load.follower):
        thread.start()
    try:
        yield load
    finally:
        load.finish()
    assert not load.refused
    assert not any(reader.is_alive() for reader in (*load.consumers, load.follower))


def _difference(whose: str, partition: str, received: Sequence[str], stored: Sequence[str]) -> str:
    places = [stored.index(eid) if eid in stored else -1 for eid in received]
    jumps = [(index, a, b) for index, (a, b) in enumerate(pairwise(places)) if b != a + 1]
    return f"the {whose} got of partition {partition} {len(received)} of {len(stored)} events; jumps: {jumps}"


def from_begin(partitions: Sequence[str]) -> Mapping[str, str]:
    """The cursors header of a low-level stream that reads partitions from their beginning."""
    return {"X-Nakadi-Cursors": json.dumps([{"partition": each, "offset": "BEGIN"} for each in partitions])}


def read_back(client: httpx.Client, event_type: str, count: int) -> dict[str, list[str]]:
    """All events of an event type by partition, read from the broker."""
    partitions = [each["partition"] for each in client.get(f"/event-types/{event_type}/partitions").json()]
    stored: dict[str, list[str]] = defaultdict(list)
    # All events end the stream; a slow machine may take long for those of many timelines.
    options = {"stream_limit": count, "batch_limit": 100, "batch_flush_timeout": 1, "stream_timeout": 120}
    path = f"/event-types/{event_type}/events"
    with open_stream(client, path, headers=from_begin(partitions), params=options) as stream:
        for batch in stream.batches():
            assert "info" not in batch, batch
            if eids := [each["metadata"]["eid"] for each in batch.get("events", [])]:
                stored[batch["cursor"]["partition"]] += eids
    return stored
