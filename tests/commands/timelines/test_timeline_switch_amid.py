"""Concurrency of a switch: at each of its steps another process publishes, and does something else as well."""

import contextlib
import itertools
from functools import partial

import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.system.storages import CreateStorage, DeleteStorage, SwitchFeature
from rioni.commands.timelines.timelines import Repartition, StartSwitch
from rioni.domain.errors import Conflict, EventTypeNotFound, InUse, NotFound, RioniError, Unavailable
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition
from rioni.projections.queries.timeline_reader import read_after
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from tests.support.broker import Broker
from tests.support.builders import event_type_spec
from tests.support.processes import Process, ProcessDied


pytestmark = pytest.mark.slow
NAME = "order.created"
STORAGES = ["default", "other"]
STEPS = range(12)
"""Before and after: the check whether it is possible, the start, the creation of the new topic, the record that the old
one is about to be closed, the closing, and the completion."""
UNDER_WAY = STEPS[3:-1]
CLOSING = STEPS[7:-1]
"""From these steps on a switch can only be completed."""
TO_BE_ABORTED = STEPS[3:7]
CREATED = STEPS[5]
"""The new topic exists, and the call that creates it has not returned."""
TO_OTHER = StartSwitch(event_type=NAME, storage_id="other")


class Race:
    """Two processes: one switches, the other one runs an action at one of the steps."""

    def __init__(self, broker, directory):
        self.broker = broker
        open_coordinator = partial(
            EmbeddedCoordinator, directory.coordination, clock=broker.clock, signals=broker.signals
        )
        self.one, self.other = Process(broker, open_coordinator()), Process(broker, open_coordinator())
        self.acknowledged = []
        self.answer = None
        """The result of the other process's action."""

    def publish(self):
        """Publish by the other process, whose registry may be outdated."""
        event = b"%d" % len(self.acknowledged)
        active = self.other.registry.timelines(NAME).active
        with contextlib.suppress(Unavailable, EventTypeNotFound):
            self.other.timeline.append(active, {0: [event]})
            self.acknowledged.append(event)

    def switch(self, at, act):
        """Switch, and return the outcome; that of the other process is in `answer`."""
        steps = itertools.count()

        def step():
            self.publish()
            if next(steps) == at:
                self.answer = outcome(act)
                self.publish()

        self.one.step = step
        result = outcome(lambda: self.one.timeline_switcher.switch(TO_OTHER, self.broker.context()))
        self.one.step = lambda: None
        return result

    @property
    def timelines(self):
        self.broker.registry.refresh()
        return self.broker.registry.timelines(NAME)

    def stored(self):
        """All events, in the order in which they are read."""
        place, found = TimelinePosition(1, BEFORE_FIRST), []
        while True:
            order, chunks = read_after(self.timelines, self.broker.stores, 0, place, 100)
            if not chunks:
                return found
            found += [event for chunk in chunks for event in chunk.data.split(b",")]
            place = TimelinePosition(order, chunks[-1].next - 1)

    def check(self):
        """Nothing is lost or locked: publishing and switching work, and there are no topics but those of timelines."""
        self.other.registry.refresh()
        before = len(self.acknowledged)
        self.publish()
        assert len(self.acknowledged) == before + 1, "something is locked"
        assert self.timelines.switch is None
        self.other.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="default"), self.broker.context())
        self.publish()
        assert self.stored() == self.acknowledged
        self.check_topics({(each.storage_id, each.topic) for each in self.timelines.readable})

    def check_topics(self, expected):
        self.broker.background_jobs()._orphan_cleaner.delete_abandoned(self.broker.context())
        storages = [each.id for each in self.broker.registry.storages()]
        assert {(each, topic) for each in storages for topic in self.broker.stores.of(each).topics()} == expected


def outcome(act):
    """The type of exception that an action raises, or True."""
    try:
        act()
    except RioniError as ex:
        return type(ex)
    return True


@pytest.fixture
def directory(tmp_path):
    with DataDirectory(tmp_path / "data") as directory:
        yield directory


@pytest.fixture
def race(directory):
    with contextlib.closing(Broker(directory)) as broker:
        broker.do(CreateStorage(storage=StorageEntry(id="other", storage_type="embedded", default=False)))
        broker.do(CreateEventType(spec=event_type_spec()))
        race = Race(broker, directory)
        yield race
        for process in (race.one, race.other):
            process.coordinator.close()


def test_the_tested_steps_are_all_steps_of_a_switch(race):
    """Reference timelines#switch-steps."""
    steps = []
    race.one.step = lambda: steps.append(race.timelines.switch)
    race.one.timeline_switcher.switch(TO_OTHER, race.broker.context())
    assert len(steps) == len(STEPS)
    assert [at for at in STEPS if steps[at] is not None] == list(UNDER_WAY)
    assert [at for at in UNDER_WAY if steps[at].closing] == list(CLOSING)


@pytest.mark.parametrize("at", STEPS)
def test_of_two_concurrent_switches_one_succeeds_and_the_other_one_is_a_conflict(race, at):
    act = partial(race.other.timeline_switcher.switch, TO_OTHER, race.broker.context())
    assert race.switch(at, act) is True
    under_way = at in UNDER_WAY
    assert race.answer is (Conflict if under_way else True)
    assert len(race.timelines.timelines) == (2 if under_way else 3)
    race.check()


@pytest.mark.parametrize("at", STEPS)
def test_partitions_are_not_added_during_a_switch(race, at):
    act = partial(race.other.bus.dispatch, Repartition(event_type=NAME, partition_count=3), race.broker.context())
    race.broker.do(SwitchFeature(feature="repartitioning", enabled=True))
    assert race.switch(at, act) is True
    under_way = at in UNDER_WAY
    assert race.answer is (Unavailable if under_way else True)
    assert {each.partitions for each in race.timelines.timelines} == ({1} if under_way else {3})
    race.check()


@pytest.mark.parametrize("confirms_topics", [False, True])
@pytest.mark.parametrize("at", STEPS)
def test_an_event_type_deleted_during_a_switch_is_deleted_with_all_its_topics(race, at, confirms_topics):
    race.one.confirms_topics = confirms_topics
    act = partial(race.other.bus.dispatch, DeleteEventType(name=NAME), race.broker.context())
    done = race.switch(at, act)
    assert race.answer is True
    assert done is (True if at == STEPS[-1] else EventTypeNotFound)
    race.check_topics(set())


def test_a_switch_whose_new_topic_is_deleted_is_aborted(race):
    race.one.confirms_topics = True
    done = race.switch(
        CREATED, lambda: race.broker.stores.of("other").delete_topic(race.timelines.switch.timeline.topic)
    )
    assert race.answer is True
    assert done is Conflict
    assert len(race.timelines.timelines) == 1
    race.check()


@pytest.mark.parametrize("at", STEPS)
def test_an_event_type_recreated_during_a_switch_is_another_one(race, at):
    def act():
        race.other.bus.dispatch(DeleteEventType(name=NAME), race.broker.context())
        race.other.bus.dispatch(CreateEventType(spec=event_type_spec()), race.broker.context())
        race.other.registry.refresh()
        race.acknowledged.clear()

    done = race.switch(at, act)
    assert race.answer is True
    assert done is (Conflict if at in UNDER_WAY else True)
    assert len(race.timelines.timelines) == (2 if at < UNDER_WAY[0] else 1)
    race.check()


@pytest.mark.parametrize("at", STEPS)
def test_either_the_target_storage_is_deleted_during_a_switch_or_the_switch_is_made(race, at):
    act = partial(race.other.bus.dispatch, DeleteStorage(storage_id="other"), race.broker.context())
    done = race.switch(at, act)
    assert (race.answer is True) != (done is True)
    assert race.answer in {True, InUse}
    if done is True:
        race.check()
    else:
        assert race.stored() == race.acknowledged
        race.publish()
        assert race.stored() == race.acknowledged


@pytest.mark.parametrize("at", STEPS)
@pytest.mark.parametrize(("others_switch", "confirms_topics"), [(False, False), (True, False), (False, True)])
def test_a_process_considered_dead_during_a_switch_does_no_harm_when_it_continues(
    race, at, others_switch, confirms_topics
):
    """Reference timelines#interrupted-switches."""
    race.one.confirms_topics = confirms_topics

    def act():
        # Its session is lost, as that of a node that was suspended for a while.
        race.one.coordinator.close()
        race.other.registry.refresh()
        race.other.timeline_switcher.repair(race.broker.context)
        if others_switch:
            race.other.timeline_switcher.switch(
                StartSwitch(event_type=NAME, storage_id="default"), race.broker.context()
            )

    done = race.switch(at, act)
    assert race.answer is True
    assert done is (Conflict if at in TO_BE_ABORTED else True)
    race.check()


def dies_at(process, at):
    """Let a process die at one of its next steps."""
    steps = itertools.count()

    def step():
        if next(steps) >= at:
            raise ProcessDied

    process.step = step


@pytest.mark.parametrize("at", range(6))
def test_a_process_that_completes_the_switch_of_another_may_die_at_any_step(race, at):
    """Before and after: the check whether there is a switch, the closing, and the completion."""

    def act():
        race.one.coordinator.close()
        dies_at(race.other, at)
        race.other.registry.refresh()
        with pytest.raises(ProcessDied):
            race.other.timeline_switcher.repair(race.broker.context)
        race.other.step = lambda: None

    assert race.switch(CLOSING[0], act) is True
    assert race.answer is True
    assert len(race.timelines.timelines) == 2
    race.check()


def test_the_next_process_completes_the_switch_of_a_dead_process(race):
    """Reference timelines#interrupted-switches."""
    race.broker.do(SwitchFeature(feature="repartitioning", enabled=True))
    dies_at(race.one, CLOSING[-1])
    with pytest.raises(ProcessDied):
        race.one.timeline_switcher.switch(TO_OTHER, race.broker.context())
    race.one.coordinator.close()
    race.publish()
    assert race.acknowledged == [], "the old topic is closed"
    race.other.bus.dispatch(Repartition(event_type=NAME, partition_count=2), race.broker.context())
    assert [(each.storage_id, each.partitions) for each in race.timelines.timelines] == [("default", 2), ("other", 2)]
    race.check()


@pytest.mark.parametrize("at", range(4))
def test_an_interrupted_abort_either_changes_nothing_or_is_complete(race, at):

    def act():
        race.one.coordinator.close()
        dies_at(race.other, at)
        race.other.registry.refresh()
        with contextlib.suppress(ProcessDied):
            race.other.timeline_switcher.repair(race.broker.context)
        race.other.step = lambda: None

    done = race.switch(TO_BE_ABORTED[-1], act)
    assert race.answer is True
    assert done is (Conflict if at > 0 else True)
    race.check()


@pytest.mark.parametrize("at", STEPS)
def test_an_event_type_may_become_compacted_during_a_switch(race, at):
    spec = event_type_spec(cleanup_policy="compact_and_delete")
    race.switch(at, partial(race.other.bus.dispatch, ChangeEventType(name=NAME, spec=spec), race.broker.context()))
    assert race.answer is True
    assert race.stored() == race.acknowledged


def test_a_partition_is_added_though_the_switching_process_has_died(race):
    race.broker.do(SwitchFeature(feature="repartitioning", enabled=True))
    dies_at(race.one, TO_BE_ABORTED[-1])
    with pytest.raises(ProcessDied):
        race.one.timeline_switcher.switch(TO_OTHER, race.broker.context())
    timeline = race.timelines.switch.timeline
    race.one.coordinator.close()
    race.other.bus.dispatch(Repartition(event_type=NAME, partition_count=2), race.broker.context())
    assert race.timelines.switch is None
    assert race.timelines.active.partitions == 2
    with pytest.raises(NotFound):
        race.broker.stores.of("other").bounds(timeline.topic)
    race.check()
