"""Streams of one subscription, over the embedded coordinator, in any order of events: what consumers rely on."""

import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rioni.domain.cursor import format_offset, parse_offset
from rioni.domain.errors import Conflict, Invalid
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.parameters import StreamParameters
from rioni.http.streaming.pump import Client, Source, StreamPorts, SubscriptionStream
from rioni.storage.embedded.coordination import EmbeddedCoordinator
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore, MemorySignals


KEYS = [EventTypePartition("a", str(number)) for number in range(3)]
SOURCES = {key: Source("topic", number, 1) for number, key in enumerate(KEYS)}
COMMIT_TIMEOUT_S = 10


@dataclass
class Reader:
    """A stream, and what its client remembers."""

    stream_id: str
    worker: int
    parameters: StreamParameters
    last: dict[EventTypePartition, int] = field(default_factory=dict)
    """The position delivered last, for each partition."""
    held: dict[EventTypePartition, int] = field(default_factory=dict)
    """The same, for those that it has not released since."""
    received_at_s: dict[EventTypePartition, float] = field(default_factory=dict)
    events: int = 0
    gone: bool = False
    pump: SubscriptionStream = field(init=False)


class Streaming(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.signals = MemorySignals(self.clock)
        self.store = MemoryEventStore(self.clock, self.signals)
        self.store.create_topic("topic", len(KEYS))
        self.workers = [self.open_worker(), self.open_worker()]
        self.subscription = "subscription"
        self.joined = 0
        self.workers[0].initialise(self.subscription, dict.fromkeys(KEYS, format_offset(1, -1)))
        self.readers: list[Reader] = []
        self.delivered: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.given_up: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.before = self.committed()

    def open_worker(self) -> EmbeddedCoordinator:
        worker = EmbeddedCoordinator(self.directory / "coordination.db", clock=self.clock, signals=self.signals)
        worker._database._writer.execute("PRAGMA synchronous = OFF")  # the machine does not die in this test
        return worker

    def committed(self) -> dict[EventTypePartition, int]:
        cursors = self.workers[0].cursors(self.subscription)
        return {key: parse_offset(cursors[key], partition="", oldest_order=1).position for key in KEYS}

    def newest(self, key: EventTypePartition) -> int:
        return self.store.bounds("topic")[int(key.partition)].newest

    # --- what happens ---

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 6))
    def publish(self, key, count):
        first = self.newest(key) + 1
        self.store.append("topic", {int(key.partition): [b"%d" % n for n in range(first, first + count)]})

    @rule(
        worker=st.integers(0, 1),
        requested=st.one_of(st.just(()), st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple)),
        window=st.integers(1, 6),
        batch=st.integers(1, 4),
        limit=st.sampled_from([0, 0, 5]),
        timeout=st.sampled_from([30, 3600]),
    )
    def join(self, worker, requested, window, batch, limit, timeout):
        parameters = StreamParameters(
            batch_limit=batch,
            stream_limit=limit,
            batch_flush_timeout_s=4,
            stream_timeout_s=timeout,
            max_uncommitted_events=window,
            commit_timeout_s=COMMIT_TIMEOUT_S,
            partitions=requested,
        )
        # Not random: who is assigned what goes by the order of the ids.
        self.joined += 1
        reader = Reader(f"stream-{self.joined}", worker, parameters)
        others = [each for each in self.readers if each.pump is not None]
        try:
            self.workers[worker].join(self.subscription, reader.stream_id, requested)
        except Conflict:
            taken = {key for each in others for key in each.parameters.partitions}
            automatic = sum(not each.parameters.partitions for each in others)
            assert taken & set(requested) if requested else automatic >= len(KEYS) - len(taken)
            return
        reader.pump = SubscriptionStream(
            self.subscription,
            reader.stream_id,
            parameters,
            SOURCES,
            StreamPorts(clock=self.clock, store=self.store, signals=self.signals, coordinator=self.workers[worker]),
            Client(gone=lambda: reader.gone),
        )
        release = reader.pump._release
        reader.pump._release = lambda key: (self.check_release(reader, key), release(key))
        self.readers.append(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), woken=st.booleans())
    def run(self, data, woken):
        self.go_on(data.draw(st.sampled_from(self.readers)), woken=woken)

    @rule()
    def run_all(self):
        for reader in list(self.readers):
            self.go_on(reader, woken=True)

    @rule(seconds=st.integers(1, COMMIT_TIMEOUT_S))
    def wait(self, seconds):
        """Time passes, and nobody notices: all streams stall."""
        self.clock.advance(seconds * 1000)

    @precondition(lambda self: any(reader.last for reader in self.readers))
    @rule(data=st.data(), back=st.integers(0, 3))
    def commit(self, data, back):
        """The newest or an older cursor that the client has got; its partition may be somebody else's by now."""
        reader = data.draw(st.sampled_from([reader for reader in self.readers if reader.last]))
        key = data.draw(st.sampled_from(sorted(reader.last)))
        self.try_commit(reader, key, max(-1, reader.last[key] - back))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), key=st.sampled_from(KEYS), position=st.integers(-1, 12))
    def commit_anything(self, data, key, position):
        """Foreign partitions, duplicates, positions that were never sent, or don't exist."""
        self.try_commit(data.draw(st.sampled_from(self.readers)), key, position)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def lose_client(self, data):
        data.draw(st.sampled_from(self.readers)).gone = True

    @precondition(lambda self: self.readers)
    @rule(requested=st.sampled_from([(), *((key,) for key in KEYS)]))
    def visit(self, requested):
        """Somebody joins, all begin to make room, and then it leaves before it has got anything."""
        others = list(self.readers)
        self.join(0, requested, 1, 1, 0, 3600)
        for reader in others:
            self.go_on(reader, woken=True)
        for reader in self.readers:
            if reader not in others:
                self.workers[0].leave(self.subscription, reader.stream_id)

    @precondition(lambda self: self.readers)
    @rule(worker=st.integers(0, 1))
    def crash(self, worker):
        """A worker process dies, and another one takes its place."""
        dead = self.workers[worker]
        os.close(dead._workers._fd)
        dead._workers._fd = -1
        dead._database.close()
        for reader in [reader for reader in self.readers if reader.worker == worker]:
            reader.pump._watch.close()
            self.readers.remove(reader)
        self.workers[worker] = self.open_worker()

    # --- doing it ---

    def try_commit(self, reader: Reader, key: EventTypePartition, position: int) -> None:
        before = self.committed()[key]
        owner = self.workers[0].topology(self.subscription).partitions[key].session
        try:
            (advanced,) = self.workers[reader.worker].commit(
                self.subscription, reader.stream_id, [(key, format_offset(1, position))]
            )
        except Invalid:
            assert owner != reader.stream_id
            assert self.committed()[key] == before
            return
        assert owner == reader.stream_id
        assert advanced == (position > before)
        self.given_up[key].update(range(before + 1, position + 1))

    def go_on(self, reader: Reader, *, woken: bool) -> None:
        pump = reader.pump
        pump._attend(woken=woken)
        while not pump._done and (data := pump._perform()):
            for line in data.splitlines():
                self.receive(reader, json.loads(line))
        if pump._done:
            assert pump._machine._closing, "no end without a reason"
            pump.close()
            assert reader.stream_id not in self.workers[0].topology(self.subscription).sessions
            self.readers.remove(reader)

    def receive(self, reader: Reader, line: dict) -> None:
        key = EventTypePartition(line["cursor"]["event_type"], line["cursor"]["partition"])
        assert self.workers[0].topology(self.subscription).partitions[key].session == reader.stream_id, "one owner"
        events = line.get("events", [])
        if not events:
            return
        assert len(events) <= reader.parameters.batch_limit
        assert events == list(range(events[0], events[-1] + 1))
        assert line["cursor"]["offset"] == format_offset(1, events[-1])
        committed = self.committed()[key]
        assert events[0] <= max(reader.last.get(key, -1), committed) + 1, "no gap"
        assert events[0] > committed or events[0] > reader.last.get(key, -1), "nothing again without need"
        reader.last[key] = reader.held[key] = events[-1]
        reader.received_at_s[key] = self.clock.monotonic()
        reader.events += len(events)
        self.delivered[key].update(events)
        self.check_window(reader)
        if reader.parameters.stream_limit:
            assert reader.events <= reader.parameters.stream_limit

    def check_window(self, reader: Reader) -> None:
        partitions = self.workers[0].topology(self.subscription).partitions
        committed = self.committed()
        outstanding = sum(
            max(0, reader.held[key] - committed[key])
            for key in reader.held
            if partitions[key].session == reader.stream_id
        )
        assert outstanding <= reader.parameters.max_uncommitted_events

    def check_release(self, reader: Reader, key: EventTypePartition) -> None:
        position = reader.held.pop(key, -1)
        if position > self.committed()[key]:
            waited_s = self.clock.monotonic() - reader.received_at_s[key]
            assert waited_s >= COMMIT_TIMEOUT_S, "released while commits were awaited"

    # --- what always holds ---

    @invariant()
    def windows_are_counted_right(self):
        for reader in self.readers:
            machine = reader.pump._machine
            assert machine._uncommitted == sum(each.outstanding.count for each in machine._turns)

    @invariant()
    def cursors_only_advance(self):
        now = self.committed()
        assert all(now[key] >= self.before[key] for key in KEYS)
        self.before = now

    @invariant()
    def no_event_is_committed_that_nobody_got_or_gave_up(self):
        for key, position in self.committed().items():
            assert set(range(position + 1)) <= self.delivered[key] | self.given_up[key]

    def teardown(self):
        try:
            self.nobody_starves()
        finally:
            for worker in self.workers:
                worker.close()
            shutil.rmtree(self.directory)

    def nobody_starves(self) -> None:
        """From any state: if clients commit what they get, and somebody is there to read, everything is consumed."""
        for _ in range(200):
            for reader in list(self.readers):
                self.go_on(reader, woken=True)
                if reader in self.readers:
                    for key, position in reader.last.items():
                        self.try_commit(reader, key, position)
            if all(self.committed()[key] >= self.newest(key) for key in KEYS):
                return
            self.clock.advance(1000)
            if not any(reader.parameters.partitions == () for reader in self.readers):
                self.join(0, (), 5, 2, 0, 3600)
        pytest.fail("events are left that nobody gets")


TestStreaming = Streaming.TestCase
TestStreaming.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
