"""Active timelines whose topics are closed although no switch is under way are replaced; no others are."""

import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import PartiallyStored, TopicClosed, Unavailable
from rioni.domain.timelines.position import Bounds
from tests.commands.timelines.test_timeline_switch import NAME, publish, repair, switch, timelines
from tests.support.builders import event_type_spec


@pytest.fixture(autouse=True)
def event_type(broker):
    return broker.do(CreateEventType(spec=event_type_spec()))


@pytest.mark.parametrize("cleanup_policy", ["delete", "compact_and_delete"])
def test_an_active_timeline_with_a_closed_topic_is_replaced(broker, cleanup_policy):
    """Switches of earlier releases could leave such a timeline, if their process died, and the repairing one as well.

    Source: reference timelines#closed-active-topics.
    """
    publish(broker)
    broker.do(ChangeEventType(name=NAME, spec=event_type_spec(cleanup_policy=cleanup_policy)))
    closed = timelines(broker).active
    broker.store.close_topic(closed.topic)
    with pytest.raises(Unavailable, match="in maintenance"):
        broker.timeline.append(closed, {0: [b"{}"]})
    repair(broker)
    old, new = timelines(broker).timelines
    assert (old.id, old.latest_position, new.storage_id) == (closed.id, (0,), closed.storage_id)
    broker.timeline.append(closed, {0: [b"{}"]})
    assert broker.store.bounds(new.topic) == [Bounds(0, 0)]
    head = broker.log.head()
    repair(broker)
    assert broker.log.head() == head


def test_a_switch_that_ends_while_an_append_is_rejected_leaves_nothing_to_repair(broker, monkeypatch):
    closed = timelines(broker).active
    broker.store.close_topic(closed.topic)
    refused = iter([lambda: None, lambda: (switch(broker), broker.registry.refresh())])

    def append(topic, _batches, **_options):
        """Another publisher refreshes the registry after the switch, before this one gets its rejection."""
        next(refused)()
        raise TopicClosed(topic)

    monkeypatch.setattr(broker.store, "append", append)
    with pytest.raises(Unavailable, match="in maintenance"):
        broker.timeline.append(closed, {0: [b"{}"]})
    assert broker.registry.timelines(NAME).active.id != closed.id
    assert not broker.timeline.found_closed


def test_each_timeline_with_a_closed_topic_is_replaced_by_one_with_its_own_topic(broker):
    names = [NAME, "a", "b"]
    for name in names[1:]:
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
    broker.registry.refresh()
    for name in names:
        closed = broker.registry.timelines(name).active
        broker.store.close_topic(closed.topic)
        broker.timeline.found_closed[name] = closed
    # One run finds them all.
    broker.background_jobs().tick()
    broker.registry.refresh()
    active = [broker.registry.timelines(name).active for name in names]
    assert [each.order for each in active] == [2, 2, 2]
    assert len({each.topic for each in active}) == len({each.id for each in active}) == len(names)
    broker.do(DeleteEventType(name="a"))
    assert publish(broker).events == 1


def test_a_timeline_found_closed_and_replaced_meanwhile_is_not_replaced_again(broker):
    closed = timelines(broker).active
    switch(broker)
    broker.timeline.found_closed[NAME] = closed
    broker.timeline.found_closed["gone"] = closed
    head = broker.log.head()
    repair(broker)
    assert broker.log.head() == head
    broker.start_switch(NAME)
    broker.timeline.found_closed[NAME] = timelines(broker).active
    head = broker.log.head()
    broker.do(StartSwitch(event_type=NAME, storage_id="default", replaces=timelines(broker).active.id))
    assert broker.log.head() == head


def test_a_batch_is_partially_stored_if_no_timeline_is_open_for_its_rest(broker, monkeypatch):
    """Reference publishing#partial-results."""
    append, closed = broker.store.append, timelines(broker).active

    def append_first(topic, batches, **_options):
        monkeypatch.setattr(broker.store, "append", append)
        append(topic, {number: events[:1] for number, events in batches.items()})
        broker.store.close_topic(topic)
        raise TopicClosed(topic, dict.fromkeys(batches, 1))

    monkeypatch.setattr(broker.store, "append", append_first)
    with pytest.raises(PartiallyStored) as caught:
        broker.timeline.append(closed, {0: [b"{}", b"{}"]})
    assert caught.value.failed == {0: "interrupted"}


def test_nothing_is_appended_for_a_batch_without_events(broker):
    active = timelines(broker).active
    broker.store.close_topic(active.topic)
    assert broker.timeline.append(active, {}) == {}
