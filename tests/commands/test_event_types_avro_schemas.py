import json

import msgspec
import pytest

from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType
from rioni.domain.errors import Invalid, NotFound
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.projections.queries import schemas
from rioni.storage.sql import engines
from tests.support.avro import ORDER, avro_schema, record
from tests.support.builders import SCHEMA, as_spec, event_type_spec
from tests.support.builders import event_type as json_event_type


NAME = "order.created"
AVRO = avro_schema()
WIDER = avro_schema(ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string"}]})
NARROWER = avro_schema(ORDER | {"fields": ORDER["fields"][:1]})
BROKEN = avro_schema(ORDER | {"fields": []})


def create(broker, **changes):
    return broker.do(CreateEventType(spec=event_type_spec(**{"schema": AVRO} | changes)))


def add(broker, schema):
    return broker.do(AddSchema(name=NAME, schema=schema))[0]


def test_an_event_type_may_be_created_with_an_avro_schema(broker):
    created = create(broker)
    assert (created.schema.type, created.schema.version, created.schema_of_json) == ("avro_schema", "1.0.0", None)


def test_key_and_owner_paths_are_not_checked_against_an_avro_schema(broker):
    """Reference schemas#avro-schema-checks."""
    selector = EventOwnerSelector(type="path", name="team", value="nope")
    created = create(
        broker, ordering_key_fields=("nope",), partition_strategy="hash", partition_key_fields=("nope",),
        event_owner_selector=selector,
    )  # fmt: skip
    assert created.ordering_key_fields == ("nope",)


def test_an_invalid_avro_schema_is_rejected(broker):
    with pytest.raises(Invalid, match="failed to parse avro schema the root has to be a record"):
        create(broker, schema=avro_schema("string"))


def test_submitting_the_current_schema_changes_nothing(broker):
    created = create(broker)
    head = broker.log.head()
    assert broker.do(ChangeEventType(name=NAME, spec=as_spec(created))) == created
    add(broker, AVRO)
    assert broker.log.head() == head


def test_a_json_schema_can_be_replaced_by_avro_and_is_kept_for_events_in_json(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    assert add(broker, AVRO).version == "2.0.0"
    assert add(broker, WIDER).version == "3.0.0"
    broker.registry.refresh()
    event_type = broker.registry.event_type(NAME)
    assert (event_type.schema.version, event_type.schema_of_json.version) == ("3.0.0", "1.0.0")
    assert event_type.schema_of_json.schema == SCHEMA
    changed = broker.do(ChangeEventType(name=NAME, spec=as_spec(event_type)))
    assert changed == event_type


def test_an_avro_schema_can_not_be_replaced_by_json(broker):
    create(broker)
    with pytest.raises(Invalid, match="Cannot change from avro_schema to json_schema!"):
        add(broker, event_type_spec().schema)


def test_the_current_compatibility_mode_of_the_event_type_decides(broker):
    created = create(broker, compatibility_mode="forward")
    with pytest.raises(Invalid, match=r"READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/0, message:order_id"):
        add(broker, BROKEN)
    relaxed = msgspec.structs.replace(as_spec(created), compatibility_mode="none", schema=BROKEN)
    with pytest.raises(Invalid, match="Failed to evolve avro schema"):
        broker.do(ChangeEventType(name=NAME, spec=relaxed))
    assert add(broker, NARROWER).version == "2.0.0"


def test_a_change_of_the_schema_is_checked_by_all_other_rules_too(broker):
    created = create(broker)
    for change, message in (
        ({"category": "data"}, "Category change"),
        ({"cleanup_policy": "compact"}, "cleanup_policy"),
    ):
        spec = msgspec.structs.replace(as_spec(created), schema=WIDER, **change)
        with pytest.raises(Invalid, match=message):
            broker.do(ChangeEventType(name=NAME, spec=spec))


def fetch(broker, schema):
    with engines.reading(broker.engine) as connection:
        return json.loads(schemas.body_like(connection, NAME, schema))["version"]


def test_a_version_is_found_by_an_equivalent_schema(broker):
    """Reference schemas#find-schema."""
    broker.do(CreateEventType(spec=event_type_spec()))
    add(broker, AVRO)
    add(broker, WIDER)
    assert fetch(broker, AVRO) == "2.0.0"
    assert fetch(broker, avro_schema(json.loads(AVRO.schema) | {"doc": "other", "aliases": ["Old"]})) == "2.0.0"
    assert fetch(broker, event_type_spec().schema) == "1.0.0"
    with pytest.raises(NotFound, match="schema is not found for"):
        fetch(broker, NARROWER)
    with pytest.raises(Invalid, match="failed to parse avro schema"):
        fetch(broker, avro_schema(record(("a", "nope"))))


def test_states_of_earlier_releases_can_still_be_read():
    state = json_event_type()
    assert b'json_schema":{' not in msgspec.json.encode(state)
    assert state.schema_of_json == state.schema
