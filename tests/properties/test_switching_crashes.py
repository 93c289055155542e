"""Timelines are switched, and partitions added, by processes that die at any point; others publish and read."""

import contextlib
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rioni.commands.event_types import CreateEventType
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import CleanUpTimeline, Repartition, StartSwitch
from rioni.domain.errors import Conflict, Invalid, NotFound, Unavailable
from rioni.domain.subscriptions.cursor_arithmetic import begin, distance, newest
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition
from rioni.projections.queries.timeline_reader import newest_of, offset_ranges_of, read_after
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from tests.support.broker import Broker
from tests.support.builders import LATER_MS, event_type_spec
from tests.support.campaigns import length
from tests.support.processes import Process, ProcessDied


NAME = "order.created"
PARTITIONS_MAX = 4
STORAGES = ["default", "other"]


class Worker(Process):
    """A process whose registry may be outdated, and a consumer."""

    def __init__(self, broker, directory):
        coordinator = EmbeddedCoordinator(directory.coordination, clock=broker.clock, signals=broker.signals)
        super().__init__(broker, coordinator)
        self.step, self.lives_left = self.live, -1
        self.places = defaultdict(lambda: TimelinePosition(1, BEFORE_FIRST))
        """The consumer's position in each partition."""
        self.consumed = Counter()
        """How many events of each partition it has read, or missed because they had expired."""

    def live(self):
        if self.lives_left == 0:
            raise ProcessDied
        self.lives_left -= 1


class Partition:
    """The acknowledged events of a partition."""

    def __init__(self):
        self.events, self.times_ms = [], []
        self.removed = 0
        """The number of expired events, the first ones."""


class Switching(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp())
        self.directory = DataDirectory(self.path / "data")
        self.broker = Broker(self.directory)
        self.partitions = [Partition()]
        self.serial = 0

    @initialize()
    def begin(self):
        self.broker.do(CreateStorage(storage=StorageEntry(id="other", storage_type="embedded", default=False)))
        self.broker.do(CreateEventType(spec=event_type_spec()))
        for storage_id in STORAGES:  # the machine does not lose power in this test
            self.broker.stores.of(storage_id)._database._writer.execute("PRAGMA synchronous = OFF")
        self.workers = [Worker(self.broker, self.directory) for _ in range(2)]

    @property
    def timelines(self):
        self.broker.registry.refresh()
        return self.broker.registry.timelines(NAME)

    # --- actions ---

    @rule(which=st.integers(0, 1), number=st.integers(0, PARTITIONS_MAX - 1), fresh=st.booleans())
    def publish(self, which, number, fresh):
        worker, number = self.workers[which], number % len(self.partitions)
        if fresh:
            worker.registry.refresh()
        self.serial += 1
        event = b"%d" % self.serial
        active = worker.registry.timelines(NAME).active
        if number >= active.partitions:
            return  # this process does not know the partition yet
        self.broker.clock.advance(1)
        with contextlib.suppress(Unavailable):
            worker.timeline.append(active, {number: [event]})
            self.partitions[number].events.append(event)
            self.partitions[number].times_ms.append(self.broker.clock.now_ms())

    @rule(
        which=st.integers(0, 1), number=st.integers(0, PARTITIONS_MAX - 1), size=st.integers(1, 9), fresh=st.booleans()
    )
    def consume(self, which, number, size, fresh):
        worker = self.workers[which]
        if fresh:
            worker.registry.refresh()
        timelines = worker.registry.timelines(NAME)
        number %= timelines.active.partitions
        try:
            order, chunks = read_after(timelines, self.broker.stores, number, worker.places[number], size)
        except NotFound:
            assert not fresh, "what it takes for active has been cleaned up since"
            return
        found = [event for chunk in chunks for event in chunk.data.split(b",")]
        partition = self.partitions[number]
        first = max(worker.consumed[number], partition.removed)
        assert found == partition.events[first : first + len(found)], "an event was missed, doubled or out of order"
        if chunks:
            worker.places[number] = TimelinePosition(order, chunks[-1].next - 1)
            worker.consumed[number] = first + len(found)
        elif fresh:
            assert first == len(partition.events), "the end came too early"

    @rule(which=st.integers(0, 1), lives=st.integers(-1, 24), storage_id=st.sampled_from(STORAGES))
    def switch(self, which, lives, storage_id):
        before, unfinished = len(self.timelines.timelines), self.timelines.switch
        command = StartSwitch(event_type=NAME, storage_id=storage_id)
        if unfinished is not None and unfinished.closing:
            before += 1  # it can only be completed
        try:
            with self.dying(which, lives) as worker:
                worker.timeline_switcher.switch(command, self.broker.context())
                assert len(self.timelines.timelines) == before + 1
        except Conflict:
            assert self.timelines.switch is not None

    @rule(which=st.integers(0, 1))
    def repair(self, which):
        worker = self.workers[which]
        worker.registry.refresh()
        worker.timeline_switcher.repair(self.broker.context)
        assert self.timelines.switch is None

    @rule(which=st.integers(0, 1), lives=st.integers(-1, 19), count=st.integers(1, PARTITIONS_MAX))
    def repartition(self, which, lives, count):
        try:
            with self.dying(which, lives) as worker:
                worker.bus.dispatch(Repartition(event_type=NAME, partition_count=count), self.broker.context())
        except Invalid:
            assert count < len(self.partitions)
        except Unavailable:
            assert self.timelines.switch is not None
        # It may have been completed though its process died.
        known = self.timelines.active.partitions
        assert known in {len(self.partitions), max(count, len(self.partitions))}
        self.partitions += [Partition() for _ in range(known - len(self.partitions))]

    @rule()
    def clean_up(self):
        """The oldest closed timeline is deleted with its events."""
        timelines = self.timelines
        oldest = timelines.readable[0]
        self.broker.do(CleanUpTimeline(event_type=NAME, order=oldest.order, now_ms=LATER_MS))
        for number, partition in enumerate(self.partitions):
            gone = [each.latest_position[number] + 1 for each in timelines.timelines if each.latest_position]
            if oldest.latest_position is not None:
                partition.removed = max(partition.removed, sum(gone[: oldest.order]))

    @rule(age_ms=st.integers(0, 20))
    def expire(self, age_ms):
        """Older events expire, in whatever timeline."""
        before_ms = self.broker.clock.now_ms() - age_ms
        for timeline in self.timelines.readable:
            self.broker.stores.of(timeline.storage_id).delete_before(timeline.topic, before_ms)
        for partition in self.partitions:
            partition.removed = max(partition.removed, sum(at_ms < before_ms for at_ms in partition.times_ms))

    @contextlib.contextmanager
    def dying(self, which, lives):
        """A process that dies after `lives` calls, if it makes that many; another one then takes its place."""
        worker = self.workers[which]
        worker.lives_left = lives
        try:
            yield worker
        except ProcessDied:
            worker.coordinator.close()
            self.workers[which] = Worker(self.broker, self.directory)
            self.workers[which].places, self.workers[which].consumed = worker.places, worker.consumed
        finally:
            worker.lives_left = -1

    # --- invariants ---

    @invariant()
    def acknowledged_events_are_stored_once_and_in_order(self):
        timelines = self.timelines
        ranges = offset_ranges_of(timelines, self.broker.stores)
        for number, partition in enumerate(self.partitions):
            place, found = TimelinePosition(1, BEFORE_FIRST), []
            while True:
                order, chunks = read_after(timelines, self.broker.stores, number, place, 100)
                if not chunks:
                    break
                for chunk in chunks:
                    found += chunk.data.split(b",")
                place = TimelinePosition(order, chunks[-1].next - 1)
            assert found == partition.events[partition.removed :]
            assert distance(begin(ranges[number]), newest(ranges[number]), ranges[number]) == len(found)
            assert newest_of(timelines, self.broker.stores)[number] == newest(ranges[number])

    def teardown(self):
        try:
            if hasattr(self, "workers"):
                self.nothing_stays_locked()
                self.nothing_is_left_behind()
        finally:
            for worker in getattr(self, "workers", ()):
                worker.coordinator.close()
            self.broker.close()
            self.directory.close()
            shutil.rmtree(self.path)

    def nothing_stays_locked(self):
        self.repair(0)
        before = len(self.partitions[0].events)
        self.publish(1, 0, fresh=False)
        assert len(self.partitions[0].events) == before + 1
        self.switch(0, -1, "other")
        self.publish(1, 0, fresh=False)
        self.acknowledged_events_are_stored_once_and_in_order()
        assert len(self.partitions[0].events) == before + 2

    def nothing_is_left_behind(self):
        self.broker.background_jobs()._orphan_cleaner.delete_abandoned(self.broker.context())
        for storage_id in STORAGES:
            named = {each.topic for each in self.timelines.readable if each.storage_id == storage_id}
            assert set(self.broker.stores.of(storage_id).topics()) == named


TestSwitching = Switching.TestCase
TestSwitching.settings = settings(max_examples=length(12, 2_000), stateful_step_count=30, deadline=None)
TestSwitching.pytestmark = [pytest.mark.nightly]
