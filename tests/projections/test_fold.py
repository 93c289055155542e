import msgspec
import pytest

from rioni.domain.event_types.event_type import EventTypeCreated, EventTypeDeleted, Schema, SchemaAdded
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.fold import EMPTY, Change, decode_state, encode_state, fold
from tests.support.builders import LATER, event_type, origin


STATE = event_type()
CREATED = EventTypeCreated(name=STATE.name, event_type=STATE)


def entry(event, version, position=None):
    return LogEntry(position=position or version, stream=event.stream, version=version, event=event, origin=origin())


def folded(*events):
    state, changes = EMPTY, []
    for version, event in enumerate(events, 1):
        state, new = fold(state, entry(event, version))
        changes.append({(change.table, change.key): change.row for change in new})
    return state, changes


def test_a_state_can_be_encoded_and_decoded():
    assert decode_state("event-type", encode_state(STATE)) == STATE
    assert decode_state("event-type", encode_state(None)) is None


def test_creation_writes_event_type_schema_state_and_audit():
    state, (changes,) = folded(CREATED)
    assert state.state == STATE
    assert {table for table, _ in changes} == {"states", "audit_log", "schemas", "event_types"}
    assert changes["event_types", (STATE.name,)]["body"] == msgspec.json.encode(STATE).decode()
    audit = changes["audit_log", (1,)]
    assert (audit["actor"], audit["client"], audit["before"]) == ("alice", "127.0.0.1", None)
    assert audit["after"] == encode_state(STATE)


def test_the_audit_log_contains_the_state_before_and_after():
    schema = Schema(type="json_schema", schema="{}", version="2.0.0", created_at=LATER)
    state, (_, changes) = folded(CREATED, SchemaAdded(name=STATE.name, schema=schema))
    assert changes["audit_log", (2,)]["before"] == encode_state(STATE)
    assert changes["audit_log", (2,)]["after"] == encode_state(state.state)
    assert changes["schemas", (STATE.name, "2.0.0")]["position"] == 2


def test_deletion_removes_all_rows_but_the_audit():
    state, (_, changes) = folded(CREATED, EventTypeDeleted(name=STATE.name))
    assert state.state is None
    assert changes["event_types", (STATE.name,)] is None
    assert changes["schemas", (STATE.name,)] is None
    assert changes["states", (str(CREATED.stream),)]["state"] is None
    assert changes["audit_log", (2,)]["after"] is None


@pytest.mark.parametrize("version", [0, 2])
def test_a_gap_in_the_versions_is_rejected(version):
    with pytest.raises(ValueError, match="does not follow version 0"):
        fold(EMPTY, entry(CREATED, version, position=7))


def test_a_change_without_a_row_deletes_the_row():
    assert Change("schemas", ("a",), None).row is None
