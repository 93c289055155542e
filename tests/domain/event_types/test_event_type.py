from rioni.domain.event_types.event_type import (
    EventTypeChanged,
    EventTypeCreated,
    EventTypeDeleted,
    Schema,
    SchemaAdded,
    evolve,
)
from rioni.domain.timelines.timeline import TimelinesDeleted
from tests.support.builders import LATER, event_type


NAME = "order.created"


def test_creation_gives_the_state_that_the_event_holds():
    state = event_type()
    assert evolve(None, EventTypeCreated(name=NAME, event_type=state)) == state


def test_a_change_replaces_the_whole_state():
    changed = event_type(owning_application="other")
    assert evolve(event_type(), EventTypeChanged(name=NAME, event_type=changed)) == changed


def test_an_added_schema_moves_the_time_of_the_last_change():
    schema = Schema(type="json_schema", schema="{}", version="2.0.0", created_at=LATER)
    state = evolve(event_type(), SchemaAdded(name=NAME, schema=schema))
    assert state.schema == schema
    assert state.updated_at == LATER
    assert state.created_at == event_type().created_at


def test_deletion_leaves_no_state():
    assert evolve(event_type(), EventTypeDeleted(name=NAME)) is None


def test_an_event_of_another_kind_changes_nothing():
    state = event_type()
    assert evolve(state, TimelinesDeleted(event_type=NAME)) is state
    assert evolve(None, TimelinesDeleted(event_type=NAME)) is None
