import pytest

from rioni.commands.event_types import CreateEventType
from rioni.domain.errors import NotFound
from rioni.domain.timelines.position import TimelinePosition
from rioni.projections.queries.timeline_reader import newest_consistent, newest_of
from tests.support.builders import event_type_spec
from tests.support.memory import MemoryEventStore, SingleStore


NAME = "order.created"


class LaggingStore(MemoryEventStore):
    """A store that knows appends of other processes only after a query."""

    def newest(self, topic, partitions=1):
        del partitions
        return [-1 for _ in self.bounds(topic)]


@pytest.fixture
def timelines(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def test_newest_consistent_includes_recent_appends_of_other_processes(broker, timelines):
    store = LaggingStore(broker.clock)
    store.create_topic(timelines.active.topic, 1)
    store.append(timelines.active.topic, {0: [b"{}", b"{}"]})
    assert newest_of(timelines, SingleStore(store)) == [TimelinePosition(1, -1)]
    assert newest_consistent(timelines, SingleStore(store)) == [TimelinePosition(1, 1)]


def test_a_deleted_topic_is_not_found(broker, timelines):
    with pytest.raises(NotFound):
        newest_consistent(timelines, SingleStore(MemoryEventStore(broker.clock)))
