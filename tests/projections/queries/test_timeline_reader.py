import pytest

from rioni.commands.event_types import CreateEventType
from rioni.domain.errors import NotFound
from rioni.domain.timelines.position import TimelinePosition
from rioni.projections.queries.timeline_reader import newest_consistent, newest_of
from tests.support.builders import event_type_spec
from tests.support.memory import MemoryEventStore, SingleStore


NAME = "order.created"


class HearsLate(MemoryEventStore):
    """A store that has heard of nothing that others have appended, until it asks."""

    def newest(self, topic, partitions=1):
        del partitions
        return [-1 for _ in self.bounds(topic)]


@pytest.fixture
def timelines(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def test_what_others_have_appended_a_moment_ago_counts_where_somebody_asks_for_now(broker, timelines):
    store = HearsLate(broker.clock)
    store.create_topic(timelines.active.topic, 1)
    store.append(timelines.active.topic, {0: [b"{}", b"{}"]})
    assert newest_of(timelines, SingleStore(store)) == [TimelinePosition(1, -1)]
    assert newest_consistent(timelines, SingleStore(store)) == [TimelinePosition(1, 1)]


def test_a_topic_that_is_gone_is_not_found(broker, timelines):
    with pytest.raises(NotFound):
        newest_consistent(timelines, SingleStore(MemoryEventStore(broker.clock)))
