"""Ranges of partitions in Kafka are recorded when they have changed, in bounded entries."""

import pytest
from structlog.testing import capture_logs

from rioni.commands.event_types import CreateEventType
from rioni.commands.system import anchoring
from rioni.commands.system.anchoring import ChainAnchoring
from rioni.commands.system.storages import CreateStorage, SetDefaultStorage
from rioni.domain.errors import Unavailable
from rioni.domain.system.anchors import ChainHead, EventChainsAnchored
from rioni.domain.system.storages import StorageEntry
from tests.support.builders import event_type_spec
from tests.support.memory import MemoryEventStore


EVERY_S = 10


class Ranges(MemoryEventStore):
    """A store in memory with ranges instead of hash chains; it fails while it is out of reach."""

    reachable = True

    def ranges(self, topics):
        if not self.reachable:
            raise Unavailable("out of reach")
        return [
            ChainHead(topic, number, bounds.oldest, bounds.newest + 1, "")
            for topic in topics
            for number, bounds in enumerate(self.bounds(topic))
        ]


class Stores(dict):
    """The port `EventStores` for stores that are there already."""

    def __init__(self, embedded, **stores) -> None:
        super().__init__(stores)
        self._embedded = embedded

    def of(self, storage_id):
        return self[storage_id] if storage_id in self else self._embedded.of(storage_id)


class Leader:
    def held(self):
        return True


@pytest.fixture
def stores(broker):
    return Stores(broker.stores, far=Ranges(broker.clock), near=Ranges(broker.clock))


@pytest.fixture
def topics(broker, stores):
    """The topics of event types in three storages, each with one partition."""
    bus, found = broker.bus_on(broker.log, stores), {}
    for storage, names in (("default", ["e"]), ("far", ["f"]), ("near", ["a", "b", "c"])):
        if storage != "default":
            entry = StorageEntry(id=storage, storage_type="kafka", default=False)
            bus.dispatch(CreateStorage(storage=entry), broker.context())
            bus.dispatch(SetDefaultStorage(storage_id=storage), broker.context())
        for name in names:
            bus.dispatch(CreateEventType(spec=event_type_spec(name=name)), broker.context())
            broker.registry.refresh()
            found[name] = broker.registry.timelines(name).active.topic
    return found


@pytest.fixture
def anchored(broker, topics):
    """The records since the last call: by entry the storage, and the event types with their next positions."""
    names, position = {topic: name for name, topic in topics.items()}, broker.log.head().position

    def anchored():
        nonlocal position
        entries = broker.log.entries(position, 1_000)
        position = entries[-1].position if entries else position
        events = [each.event for each in entries if isinstance(each.event, EventChainsAnchored)]
        return [(each.storage, {names[head.topic]: head.next for head in each.heads}) for each in events]

    return anchored


@pytest.fixture
def leader(broker, stores):
    """Makes the job of a process that has just become the leader."""
    return lambda: ChainAnchoring(broker.registry, stores, broker.bus, broker.clock, Leader(), broker.context, EVERY_S)


def later(broker, job):
    broker.clock.advance(1_000 * EVERY_S)
    job.tick()


def test_ranges_are_recorded_when_they_have_changed_and_once_by_each_leader(broker, stores, topics, leader, anchored):
    job = leader()
    job.tick()
    assert anchored() == []
    later(broker, job)
    everything = [("far", {"f": 0}), ("near", {"a": 0, "b": 0, "c": 0})]
    assert [each for each in anchored() if each[0] != "default"] == everything
    stores["near"].append(topics["b"], {0: [b"1", b"2"]})
    later(broker, job)
    later(broker, job)
    assert anchored() == [("near", {"b": 2})]
    later(broker, leader())
    assert anchored() == [("far", {"f": 0}), ("near", {"a": 0, "b": 2, "c": 0})]


def test_entries_and_rounds_are_bounded(monkeypatch, broker, topics, leader, anchored):
    monkeypatch.setattr(anchoring, "HEADS_MAX", 1)
    monkeypatch.setattr(anchoring, "ROUNDS_MAX", 2)
    job = leader()
    later(broker, job)
    assert anchored()[-2:] == [("near", {"a": 0}), ("near", {"b": 0})]
    later(broker, job)
    later(broker, job)
    assert anchored() == [("near", {"c": 0})]


def test_a_storage_that_fails_does_not_keep_the_others_from_being_recorded(broker, stores, topics, leader, anchored):
    job = leader()
    stores["far"].reachable = False
    with capture_logs() as logged:
        later(broker, job)
        later(broker, job)
    assert [line["job"] for line in logged] == ["recording the heads of partitions of storage far"]
    assert [storage for storage, _ in anchored()] == ["default", "near"]
    stores["far"].reachable = True
    later(broker, job)
    assert anchored() == [("far", {"f": 0})]
