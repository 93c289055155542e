"""The promises to consumers, for streams of one subscription over the embedded coordinator, in any order of events.

Once without dead letters, and once with them: then some events are poison, which no consumer ever commits.
"""

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

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import Conflict, Invalid
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.domain.streaming.batching import Slice, Visibility
from rioni.domain.streaming.parameters import StreamParameters
from rioni.domain.subscriptions.dead_letters import Policy
from rioni.domain.timelines.position import EventTypePartition, format_offset, parse_offset
from rioni.http.streaming.stream_context import StreamPorts
from rioni.http.streaming.streams import DeadLetterHandler, SubscriptionStream
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from tests.support.builders import timeline, timelines_of
from tests.support.campaigns import length
from tests.support.clock import ManualClock
from tests.support.memory import MemoryEventStore, MemorySignals, SingleStore
from tests.support.stream_client import client_with


KEYS = [EventTypePartition("a", str(number)) for number in range(4)]
AT_FIRST = 3
"""The number of these partitions that the subscription has before it gets another one."""
TIMELINES = timelines_of(timeline(1, "topic", partitions=len(KEYS)))
COMMIT_TIMEOUT_S = 10
POISON_MAX = 6
HEADERS = {
    "plain": NO_HEADERS,
    "mine": Headers(subscription_id="subscription"),
    "other": Headers(subscription_id="other"),
    "owned": Headers(owner=Attribute("team", "other")),
}


@dataclass
class Reader:
    """A stream, and the state of its client."""

    stream_id: str
    worker: int
    parameters: StreamParameters
    last: dict[EventTypePartition, int] = field(default_factory=dict)
    """The position delivered last, for each partition."""
    held: dict[EventTypePartition, int] = field(default_factory=dict)
    """The position delivered last, for partitions that it has not released since."""
    received_at_s: dict[EventTypePartition, float] = field(default_factory=dict)
    events: int = 0
    gone: bool = False
    runner: SubscriptionStream = field(init=False)


class Streaming(RuleBasedStateMachine):
    policy: Policy | None = None

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
        self.keys = KEYS[:AT_FIRST]
        self.workers[0].initialise(self.subscription, dict.fromkeys(self.keys, format_offset(1, -1)))
        self.readers: list[Reader] = []
        self.delivered: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.given_up: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.hidden: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.poison: dict[EventTypePartition, set[int]] = {key: set() for key in KEYS}
        self.dead_lettered: dict[EventTypePartition, list[int]] = {key: [] for key in KEYS}
        self.confirmed = dict.fromkeys(KEYS, -1)
        """The commits of clients that advanced a cursor."""
        self.before = self.committed()

    def open_worker(self) -> EmbeddedCoordinator:
        worker = EmbeddedCoordinator(self.directory / "coordination.db", clock=self.clock, signals=self.signals)
        worker._database._writer.execute("PRAGMA synchronous = OFF")  # the machine does not lose power in this test
        return worker

    def committed(self) -> dict[EventTypePartition, int]:
        cursors = self.workers[0].cursors(self.subscription)
        return {
            key: parse_offset(cursors.get(key, format_offset(1, -1)), partition="", oldest_order=1).position
            for key in KEYS
        }

    def newest(self, key: EventTypePartition) -> int:
        return self.store.bounds("topic")[int(key.partition)].newest

    def visible(self, key: EventTypePartition, first: int, last: int) -> list[int]:
        return [position for position in range(first, last + 1) if position not in self.hidden[key]]

    # --- actions ---

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 6))
    def publish(self, key, count):
        first = self.newest(key) + 1
        self.store.append("topic", {int(key.partition): [b"%d" % n for n in range(first, first + count)]})

    @rule(key=st.sampled_from(KEYS), kinds=st.lists(st.sampled_from([*HEADERS, "tombstone"]), min_size=1, max_size=8))
    def publish_some_hidden(self, key, kinds):
        number, first = int(key.partition), self.newest(key) + 1
        self.hidden[key] |= {position for position, kind in enumerate(kinds, first) if kind in {"other", "tombstone"}}
        events = [b"" if kind == "tombstone" else b"%d" % position for position, kind in enumerate(kinds, first)]
        headers = [HEADERS.get(kind, Headers(key="key")) for kind in kinds]
        self.store.append("topic", {number: events}, headers={number: headers})

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
        if not set(requested) <= set(self.keys):
            return
        # Not random: the assignment depends on the order of the ids.
        self.joined += 1
        reader = Reader(f"stream-{self.joined}", worker, parameters)
        others = [each for each in self.readers if each.runner is not None]
        try:
            self.workers[worker].join(self.subscription, reader.stream_id, requested)
        except Conflict:
            taken = {key for each in others for key in each.parameters.partitions}
            automatic = sum(not each.parameters.partitions for each in others)
            assert taken & set(requested) if requested else automatic >= len(self.keys) - len(taken)
            return
        reader.runner = SubscriptionStream(
            self.subscription,
            reader.stream_id,
            parameters,
            tuple(self.keys),
            StreamPorts(
                clock=self.clock,
                stores=SingleStore(self.store),
                timelines=lambda _name: TIMELINES,
                signals=self.signals,
                coordinator=self.workers[worker],
            ),
            client_with(
                is_disconnected=lambda: reader.gone,
                visibility=lambda: Visibility(subscription_id=self.subscription),
            ),
            DeadLetterHandler(policy=self.policy, handle=self.send_to_dead_letter_queue) if self.policy else None,
        )
        release = reader.runner._release
        reader.runner._release = lambda keys: ([self.check_release(reader, key) for key in keys], release(keys))
        self.readers.append(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), woken=st.booleans())
    def run(self, data, woken):
        self.run_stream(data.draw(st.sampled_from(self.readers)), woken=woken)

    @rule()
    def run_all(self):
        for reader in list(self.readers):
            self.run_stream(reader, woken=True)

    @rule(seconds=st.integers(1, COMMIT_TIMEOUT_S))
    def wait(self, seconds):
        """Time passes without any stream being run: all of them stall."""
        self.clock.advance(seconds * 1000)

    @precondition(lambda self: any(reader.last for reader in self.readers))
    @rule(data=st.data(), back=st.integers(0, 3))
    def commit(self, data, back):
        """The newest or an older cursor that the client has received; another session may own its partition by now."""
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
        data.draw(st.sampled_from(self.readers)).is_disconnected = True

    @precondition(lambda self: len(self.keys) < len(KEYS))
    @rule(worker=st.integers(0, 1))
    def repartition(self, worker):
        """The subscription gets another partition, which may hold events already; streams that don't know it end."""
        self.keys = KEYS
        self.workers[worker].extend(self.subscription, dict.fromkeys(KEYS, format_offset(1, -1)))

    @precondition(lambda self: self.readers)
    @rule(requested=st.sampled_from([(), *((key,) for key in KEYS)]))
    def join_and_leave(self, requested):
        """A stream joins, the others begin to release partitions, and it leaves before it has received any."""
        others = list(self.readers)
        self.join(0, requested, 1, 1, 0, 3600)
        for reader in others:
            self.run_stream(reader, woken=True)
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
            reader.runner._waiter.close()
            self.readers.remove(reader)
        self.workers[worker] = self.open_worker()

    # --- helpers ---

    def send_to_dead_letter_queue(self, key: EventTypePartition, event: Slice, times: int) -> None:
        assert times == self.policy.send_count
        assert event.stop == event.start + 1
        assert self.visible(key, event.start, event.start), "hidden events are not dead_lettered"
        assert not self.visible(key, self.committed()[key] + 1, event.start - 1), "nothing before it is waited for"
        self.dead_lettered[key].append(event.start)
        self.given_up[key].add(event.start)

    def try_commit(self, reader: Reader, key: EventTypePartition, position: int) -> None:
        before = self.committed()[key]
        # A consumer of a poison event does not commit, nor send heartbeats.
        furthest = min([bad - 1 for bad in self.poison[key] if bad > before], default=position)
        if position > furthest == before:
            return
        position = min(position, furthest)
        assignment = self.workers[0].topology(self.subscription).partitions.get(key)
        owner = assignment.session if assignment else ""
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
        self.confirmed[key] = max(self.confirmed[key], position)
        self.given_up[key].update(range(before + 1, position + 1))

    def run_stream(self, reader: Reader, *, woken: bool) -> None:
        runner = reader.runner
        runner._check_client(woken=woken)
        while not runner._done and (data := runner._execute()):
            for line in b"".join(data).splitlines():
                self.receive(reader, json.loads(line))
        if runner._done:
            assert runner._machine._closing, "no end without a reason"
            runner.close()
            assert reader.stream_id not in self.workers[0].topology(self.subscription).sessions
            self.readers.remove(reader)

    def receive(self, reader: Reader, line: dict) -> None:
        key = EventTypePartition(line["cursor"]["event_type"], line["cursor"]["partition"])
        events = line.get("events", [])
        # A stream without partitions sends the reason of its end on a partition of another one, and nothing else.
        if events or not reader.runner._machine._closing:
            assert self.workers[0].topology(self.subscription).partitions[key].session == reader.stream_id, "one owner"
        if not events:
            return
        assert len(events) <= reader.parameters.batch_limit
        assert events == self.visible(key, events[0], events[-1]), "what is visible, all of it, in order"
        assert line["cursor"]["offset"] == format_offset(1, events[-1])
        committed = self.committed()[key]
        assert not self.visible(key, max(reader.last.get(key, -1), committed) + 1, events[0] - 1), "no gap"
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
            len(self.visible(key, committed[key] + 1, reader.held[key]))
            for key in reader.held
            if partitions[key].session == reader.stream_id
        )
        assert outstanding <= reader.parameters.max_uncommitted_events

    def check_release(self, reader: Reader, key: EventTypePartition) -> None:
        position = reader.held.pop(key, -1)
        if position > self.committed()[key]:
            waited_s = self.clock.monotonic() - reader.received_at_s[key]
            assert waited_s >= COMMIT_TIMEOUT_S, "released while commits were awaited"

    # --- invariants ---

    @invariant()
    def windows_are_counted_right(self):
        for reader in self.readers:
            machine = reader.runner._machine
            assert machine._sender.uncommitted == sum(each.outstanding.count for each in machine._round_robin)

    @invariant()
    def cursors_only_advance(self):
        now = self.committed()
        assert all(now[key] >= self.before[key] for key in KEYS)
        self.before = now

    @invariant()
    def no_event_is_committed_without_delivery_or_dead_letter(self):
        for key, position in self.committed().items():
            assert set(range(position + 1)) <= self.delivered[key] | self.given_up[key] | self.hidden[key]

    @invariant()
    def the_broker_commits_nothing_but_hidden_events(self):
        for key, position in self.committed().items():
            assert set(self.visible(key, self.confirmed[key] + 1, position)) <= set(self.dead_lettered[key])

    def teardown(self):
        try:
            self.everything_is_consumed()
        finally:
            for worker in self.workers:
                worker.close()
            shutil.rmtree(self.directory)

    def everything_is_consumed(self) -> None:
        """From any state: if clients commit what they receive, and some client is connected, everything is consumed.

        A stream with a window of one event advances by one event a second, so the wait ends when there is no progress.
        Streams end if a committed cursor is beyond the last event, until there are events up to it, or it is reset.
        """
        for key, position in self.committed().items():
            if key in self.keys and position > self.newest(key):
                self.publish(key, position - self.newest(key))
        rounds_without_progress, before = 0, self.committed()
        while rounds_without_progress < 200:
            for reader in list(self.readers):
                self.run_stream(reader, woken=True)
                if reader in self.readers:
                    for key, position in reader.last.items():
                        self.try_commit(reader, key, position)
            if all(self.committed()[key] >= self.newest(key) for key in self.keys):
                return
            self.clock.advance(1000)
            if not any(reader.parameters.partitions == () for reader in self.readers):
                self.join(0, (), 5, 2, 0, 3600)
            rounds_without_progress = 0 if (now := self.committed()) != before else rounds_without_progress + 1
            before = now
        pytest.fail("some events are never delivered")


class StreamingWithDeadLetters(Streaming):
    """Every poison event is sent to the dead letter queue once, and no other that is committed in time."""

    policy = Policy(send_count=2, keeps=True)

    @precondition(lambda self: sum(map(len, self.poison.values())) < POISON_MAX)
    @rule(key=st.sampled_from(KEYS), kinds=st.lists(st.booleans(), min_size=1, max_size=4))
    def publish_poison(self, key, kinds):
        first = max(self.newest(key), self.committed()[key]) + 1
        self.publish(key, first - self.newest(key) - 1 + len(kinds))
        self.poison[key] |= {position for position, poison in enumerate(kinds, first) if poison}

    @invariant()
    def no_event_is_sent_to_the_dead_letter_queue_twice(self):
        # Nothing interrupts the handling of a dead letter here, so it is not repeated either.
        for positions in self.dead_lettered.values():
            assert positions == sorted(set(positions))

    @invariant()
    def only_the_broker_commits_poison(self):
        for key, position in self.committed().items():
            assert {bad for bad in self.poison[key] if bad <= position} <= set(self.dead_lettered[key])

    def everything_is_consumed(self) -> None:
        # Streams that are open now are stuck at poison events; new ones commit all that they can.
        for reader in list(self.readers):
            self.workers[reader.worker].leave(self.subscription, reader.stream_id)
            reader.runner._waiter.close()
            self.readers.remove(reader)
        failures = self.workers[0].delivery_failures(self.subscription)
        suspects = {
            key: parse_offset(failure.failed, partition="", oldest_order=1).position
            for key, failure in failures.items()
            if failure.failures >= self.policy.send_count
        }
        before = {key: set(positions) for key, positions in self.dead_lettered.items()}
        super().everything_is_consumed()
        for key in self.keys:
            assert self.poison[key] <= set(self.dead_lettered[key])
            assert set(self.dead_lettered[key]) - before[key] - self.poison[key] <= {suspects.get(key)}


TestStreaming = Streaming.TestCase
TestStreaming.settings = settings(max_examples=length(40, 5_000), stateful_step_count=50, deadline=None)
TestStreaming.pytestmark = [pytest.mark.nightly]

TestStreamingWithDeadLetters = StreamingWithDeadLetters.TestCase
TestStreamingWithDeadLetters.settings = settings(max_examples=length(20, 2_500), stateful_step_count=40, deadline=None)
TestStreamingWithDeadLetters.pytestmark = [pytest.mark.nightly]
