"""Closed topics of Kafka are read once, block by block, by one leader after the other."""

import pytest
from structlog.testing import capture_logs

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.system import anchoring
from rioni.commands.system.anchoring import LOOK_EVERY_S, TopicDigests
from rioni.commands.system.storages import CreateStorage
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import Unavailable
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import TimelineDigested
from rioni.domain.timelines.topics import BlockDigest
from tests.support.builders import event_type_spec
from tests.support.memory import MemoryEventStore


class Store(MemoryEventStore):
    """A store in memory that makes digests as Kafka's does, and can be out of reach."""

    def __init__(self, clock) -> None:
        super().__init__(clock)
        self.read_blocks, self.asked, self.reachable, self.fails_at, self.expires_at = [], [], True, None, None

    def bounds(self, topic):
        self.asked.append(topic)
        return super().bounds(topic)

    def digest(self, topic, partition, first, stop, bytes_max):
        if not self.reachable or first == self.fails_at:
            raise Unavailable("out of reach")
        if first == self.expires_at:
            self.expire(topic, partition, first + 1)
        if first < self.bounds(topic)[partition].oldest:
            return None
        self.read_blocks.append((partition, first))
        block = BlockDigest(partition, first)
        for chunk in self.read(topic, partition, first, 10**6):
            for place in range(max(first, chunk.first), min(stop, chunk.next)):
                if block.size < bytes_max:
                    block.add(place, 0, None, chunk.cut(place, place + 1), ())
        return block.end(first + block.records)

    def expire(self, topic, partition, oldest):
        self._oldest[topic, partition] = oldest


class Stores(dict):
    """The port `EventStores` for stores that are there already."""

    def of(self, storage_id):
        return self[storage_id]


class Leadership:
    def __init__(self) -> None:
        self.is_held = True

    def held(self):
        return self.is_held


@pytest.fixture
def stores(broker):
    return Stores({name: Store(broker.clock) for name in ("default", "near", "far")})


@pytest.fixture
def bus(broker, stores):
    bus = broker.bus_on(broker.log, stores)
    for name in ("near", "far"):
        storage = StorageEntry(id=name, storage_type="kafka", default=False)
        bus.dispatch(CreateStorage(storage=storage), broker.context())
    return bus


@pytest.fixture
def leader(broker, stores, bus):
    """Makes the job of a process that has just become the leader."""
    return lambda: TopicDigests(broker.registry, stores, bus, broker.clock, Leadership(), broker.context)


@pytest.fixture
def closed(broker, stores, bus):
    """Creates an event type with a closed timeline in a storage that holds a number of events; returns its topic."""

    def closed(name="a", storage="near", count=7):
        bus.dispatch(CreateEventType(spec=event_type_spec(name=name, category="business")), broker.context())
        for target in (storage, "default"):
            broker.registry.refresh()
            active = broker.registry.timelines(name).active
            if active.storage_id == storage:
                for number in range(count):
                    stores[storage].append(active.topic, {0: [b"%d" % number]})
            bus.dispatch(StartSwitch(event_type=name, storage_id=target), broker.context())
        broker.registry.refresh()
        return broker.registry.timelines(name).timelines[1].topic

    return closed


@pytest.fixture
def recorded(broker):
    """The digests in the log: the first and the next position of each block, by entry."""

    def recorded(name="a"):
        events = [each.event for each in broker.log.entries(0, 10_000) if isinstance(each.event, TimelineDigested)]
        return [[(each.first, each.next) for each in event.blocks] for event in events if event.event_type == name]

    return recorded


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(anchoring, "BLOCK_POSITIONS", 2)
    monkeypatch.setattr(anchoring, "BLOCKS_MAX", 2)


def later(broker, job):
    broker.clock.advance(1_000 * int(LOOK_EVERY_S))
    job.tick()


def test_a_closed_topic_is_read_once_by_all_leaders_together(broker, stores, leader, closed, recorded):
    closed()
    job = leader()
    job.tick()
    assert recorded() == [[(0, 7)]]
    for each in (job, leader(), job):
        later(broker, each)
    assert recorded() == [[(0, 7)]]
    assert stores["near"].read_blocks == [(0, 0)]


@pytest.mark.usefixtures("small")
def test_entries_and_blocks_are_bounded_and_another_leader_goes_on_where_the_last_entry_ends(
    stores, leader, closed, recorded
):
    closed()
    stores["near"].fails_at = 6
    with capture_logs():
        leader().tick()
    assert recorded() == [[(0, 2), (2, 4)]]
    stores["near"].fails_at = None
    leader().tick()
    assert recorded() == [[(0, 2), (2, 4)], [(4, 6), (6, 7)]]
    assert [first for _, first in stores["near"].read_blocks] == [0, 2, 4, 4, 6]


def test_only_closed_topics_in_kafka_whose_events_stay_as_they_are_have_digests(broker, bus, leader, closed, recorded):
    closed("a")
    closed("embedded", "default")
    closed("empty", count=0)
    closed("compacted")
    spec = event_type_spec(name="compacted", category="business", cleanup_policy="compact_and_delete")
    bus.dispatch(ChangeEventType(name="compacted", spec=spec), broker.context())
    job = leader()
    job._leadership.is_held = False
    job.tick()
    assert recorded() == []
    leader().tick()
    assert {name: recorded(name) for name in ("a", "embedded", "empty", "compacted")} == {
        "a": [[(0, 7)]],
        "embedded": [],
        "empty": [],
        "compacted": [],
    }


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("oldest", "expires_at", "expected"),
    [
        (3, None, [[(3, 5), (5, 7)]]),
        (7, None, [[]]),
        (9, None, [[]]),
        (0, 2, [[(0, 2)], [(3, 5), (5, 7)]]),
    ],
    ids=["before", "all", "all and more", "meanwhile"],
)
def test_what_has_expired_is_left_out(broker, stores, leader, closed, recorded, oldest, expires_at, expected):
    stores["near"].expires_at = expires_at
    stores["near"].expire(closed(), 0, oldest)
    job = leader()
    for _ in range(3):
        later(broker, job)
    assert recorded() == expected


def test_a_storage_that_fails_is_logged_once_and_tried_again_later(broker, stores, leader, closed, recorded):
    for name, storage in (("a", "far"), ("b", "near"), ("c", "far")):
        closed(name, storage)
    stores["far"].reachable = False
    job = leader()
    with capture_logs() as logged:
        for _ in range(3):
            job.tick()
    assert [line["reason"] for line in logged] == ["out of reach"]
    assert [recorded(name) for name in "abc"] == [[], [[(0, 7)]], []]
    stores["far"].reachable = True
    later(broker, job)
    assert [recorded(name) for name in "abc"] == [[[(0, 7)]]] * 3


def test_topics_that_are_gone_or_too_short_do_not_keep_others_from_being_read(
    broker, stores, bus, leader, closed, recorded
):
    gone = closed("a")
    stores["near"].delete_topic(gone)
    closed("deleted")
    short = closed("short")
    del stores["near"]._topics[short][0][-2:]
    closed("z")
    broker.registry.refresh()
    job = leader()
    job._look()
    bus.dispatch(DeleteEventType(name="deleted"), broker.context())
    stores["near"].asked.clear()
    with capture_logs() as logged:
        for _ in range(3):
            later(broker, job)
    assert logged == []
    assert [recorded(name) for name in ("a", "deleted", "short", "z")] == [[], [], [[(0, 5)]], [[(0, 7)]]]
    assert stores["near"].asked.count(gone) == 1


def test_between_two_looks_nothing_works_again(monkeypatch, broker, leader, closed, recorded):
    closed()
    job = leader()
    with monkeypatch.context() as away, capture_logs() as logged:

        def refresh():
            raise Unavailable("out of reach")

        away.setattr(broker.registry, "refresh", refresh)
        for _ in range(3):
            later(broker, job)
            job.tick()
        assert {line["event"] for line in logged} == {"job failed; retrying"}
    with capture_logs() as logged:
        later(broker, job)
    assert [(line["event"], line["failures"]) for line in logged] == [("works again", 3)]
    assert recorded() == [[(0, 7)]]
