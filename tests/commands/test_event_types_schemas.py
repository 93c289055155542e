import pytest

from rioni.commands.event_types import AddSchema, CreateEventType
from rioni.commands.publisher import PublishEvents
from rioni.domain.access.authorization import BROKER
from rioni.domain.errors import Invalid, InvalidFields
from rioni.domain.event_types.event_type import EventOwnerSelector, SubmittedSchema
from tests.support.builders import COMMAND_ID, NOW, SCHEMA, event_type_spec


NAME = "order.created"
WIDER = SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1)


def submitted(schema, type_="json_schema"):
    return SubmittedSchema(type=type_, schema=schema)


def test_a_wider_schema_is_a_new_version(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    schema, added = broker.do(AddSchema(name=NAME, schema=submitted(WIDER)))
    assert (schema.version, added) == ("1.1.0", True)
    broker.registry.refresh()
    assert broker.registry.event_type(NAME).schema == schema


def test_the_same_schema_is_no_event(broker):
    """Reference schemas#versions."""
    broker.do(CreateEventType(spec=event_type_spec()))
    head = broker.log.head()
    schema, added = broker.do(AddSchema(name=NAME, schema=submitted(SCHEMA)))
    assert (schema.version, added) == ("1.0.0", False)
    assert broker.log.head() == head


def test_missing_resources_are_named(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    with pytest.raises(InvalidFields) as caught:
        broker.do(AddSchema(name=NAME, schema=SubmittedSchema()))
    assert [path for path, _ in caught.value.violations] == ["type", "schema"]


def test_a_breaking_schema_is_rejected(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    with pytest.raises(Invalid, match="Invalid schema"):
        broker.do(AddSchema(name=NAME, schema=submitted(SCHEMA.replace("string", "integer"))))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"ordering_key_fields": ("nope",)}, "ordering_key_fields"),
        ({"partition_strategy": "hash", "partition_key_fields": ("nope",)}, "partition_key_fields"),
        (
            {"event_owner_selector": EventOwnerSelector(type="path", name="team", value="nope")},
            "event_owner_selector.value",
        ),
    ],
)
def test_paths_that_the_schema_does_not_declare_are_named(broker, changes, field):
    """Reference event-types#ordering-fields, event-types#owner-selector."""
    with pytest.raises(Invalid) as caught:
        broker.do(CreateEventType(spec=event_type_spec(**changes)))
    assert str(caught.value) == f"{field} [nope] absent in schema"


def test_key_fields_are_ignored_unless_events_are_hashed(broker):
    """Reference event-types#partition-strategies."""
    broker.do(CreateEventType(spec=event_type_spec(partition_key_fields=("nope",))))
    body = b'[{"order_id":"1","metadata":{"eid":"%s","occurred_at":"%s"}}]' % (COMMAND_ID.encode(), NOW.encode())
    assert broker.publisher.publish(PublishEvents(event_type=NAME, body=body, flow_id=""), BROKER).events == 1


def test_key_fields_of_data_changes_are_relative_to_the_data(broker):
    """Reference event-types#partition-strategies."""
    hashed = {"category": "data", "partition_strategy": "hash"}
    with pytest.raises(Invalid, match=r"^partition_key_fields \[data\.order_id\] absent in schema$"):
        broker.do(CreateEventType(spec=event_type_spec(**hashed, partition_key_fields=("data.order_id",))))
    broker.do(CreateEventType(spec=event_type_spec(**hashed, partition_key_fields=("order_id",))))
    broker.registry.refresh()
    assert broker.registry.event_type(NAME).partition_key_fields == ("order_id",)
