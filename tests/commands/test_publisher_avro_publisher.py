"""Publishing in Avro, from the body to what is stored: reference publishing#avro."""

import json

import pytest

from rioni.commands.event_types import AddSchema, CreateEventType, DeleteEventType
from rioni.commands.publisher import DeleteEvents, PublishEvents
from rioni.commands.system.storages import AddBlacklistEntry
from rioni.domain.access.authorization import BROKER, Attribute, EventTypeAuthorization, Subject
from rioni.domain.avro.binary import single_object_header
from rioni.domain.avro.nodes import canonical_form
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.errors import AccessDenied, Blocked, EventTypeNotFound, Invalid, Malformed, TooLarge
from rioni.domain.event_types.event_type import Statistic, SubmittedSchema
from tests.support.avro import EID, ORDER, avro_schema, batch, datum, envelope, record
from tests.support.builders import SCHEMA, event_type_spec


NAME = "order.created"
HEADER = bytes.fromhex("c301")
GOOD = {"order_id": "1", "amount": 5}


def create(broker, **changes):
    broker.do(CreateEventType(spec=event_type_spec(**{"schema": avro_schema()} | changes)))


def order(value=None, **metadata):
    return envelope(datum(value or GOOD), **metadata)


def send(broker, body, subject=BROKER, name=NAME):
    return broker.avro_publisher.publish(PublishEvents(event_type=name, body=body, flow_id="flow"), subject)


def publish(broker, *envelopes, **changes):
    return send(broker, batch(*envelopes), **changes)


def stored(broker, partitions=1):
    topic = broker.registry.timelines(NAME).active.topic
    chunks = [chunk for partition in range(partitions) for chunk in broker.store.read(topic, partition, 0, 1_000_000)]
    return [event for chunk in chunks for event in json.loads(b"[" + chunk.cut(chunk.first, chunk.next) + b"]")]


def rejections(broker, *envelopes):
    published = publish(broker, *envelopes)
    assert published.events == 0
    assert stored(broker) == []
    return published.rejected


def test_a_datum_is_stored_as_json_with_its_metadata(broker):
    create(broker)
    assert publish(broker, order()).events == 1
    assert stored(broker) == [
        {
            "order_id": "1",
            "amount": 5,
            "metadata": {
                "eid": EID,
                "occurred_at": "2023-11-14T22:13:20.000Z",
                "event_type": NAME,
                "version": "1.0.0",
                "published_by": "rioni",
                "received_at": "2023-11-14T22:13:20.000Z",
                "flow_id": "flow",
                "partition": "0",
            },
        }
    ]


def test_metadata_of_the_publisher_is_kept_except_for_fields_that_the_broker_sets(broker):
    """Reference publishing#binary-enrichment."""
    create(broker)
    kept = {"flow_id": "mine", "parent_eids": [EID], "partition_keys": ["a"], "event_owner": "me"}
    overwritten = {"published_by": "other", "received_at": 1, "partition": "7"}
    publish(broker, order(span_ctx='{"a":"b"}', **kept, **overwritten), order(span_ctx="text"))
    first, second = (event["metadata"] for event in stored(broker))
    assert first.items() >= (kept | {"published_by": "rioni", "partition": "0", "span_ctx": {"a": "b"}}).items()
    assert first["received_at"] == "2023-11-14T22:13:20.000Z"
    assert second["span_ctx"] == "text"


def test_an_empty_record_and_an_empty_batch_are_accepted(broker):
    create(broker, schema=avro_schema(record()))
    assert publish(broker).events == 0
    assert publish(broker, envelope(b"")).events == 1
    assert stored(broker)[0].keys() == {"metadata"}


def test_a_payload_may_be_in_single_object_encoding(broker):
    create(broker)
    header = single_object_header(canonical_form(parse_event_schema(json.dumps(ORDER))))
    assert publish(broker, envelope(header + datum(GOOD))).events == 1
    assert stored(broker)[0]["order_id"] == "1"


def test_each_event_is_of_the_version_that_it_names(broker):
    create(broker)
    newer = ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
    broker.do(AddSchema(name=NAME, schema=avro_schema(newer)))
    new = envelope(datum(GOOD | {"note": "x"}, newer), version="2.0.0")
    assert publish(broker, order(), new).events == 2
    assert [(event.get("note"), event["metadata"]["version"]) for event in stored(broker)] == [
        (None, "1.0.0"),
        ("x", "2.0.0"),
    ]


def test_schema_versions_of_a_deleted_event_type_are_not_reused(broker):
    create(broker)
    publish(broker, order())
    broker.do(DeleteEventType(name=NAME))
    create(broker, schema=avro_schema(record(("other", "long"))))
    assert rejections(broker, order())[0].publishing_status == "failed"
    assert publish(broker, envelope(datum({"other": 1}, record(("other", "long"))))).events == 1


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        (order(event_type="other"), "event type does not match"),
        (order(version="5.0.0"), 'EventType "order.created" has no schema with version "5.0.0"'),
        (order(version="latest"), 'EventType "order.created" has no schema with version "latest"'),
        (order(eid="nope"), "metadata.eid must be a UUID"),
        (order(parent_eids=["nope"]), "metadata.parent_eids must be UUIDs"),
        (order(occurred_at=2**62), "metadata.occurred_at must be milliseconds since 1970"),
        (envelope(b""), "the payload is not of schema version 1.0.0: it ends too early"),
        (envelope(datum(GOOD) + b"x"), "1 bytes follow after its end"),
        (envelope(HEADER + b"\x00" * 8 + datum(GOOD)), "the payload is not of schema version 1.0.0"),
        (envelope(b"x" * 1_000_000), "Event too large: 1000000 bytes, max size is 999000 bytes"),
        (order({"order_id": "x" * 998_900, "amount": None}), "bytes as JSON, max size is 999000 bytes"),
        (order({"order_id": "\x00" * 200_000, "amount": None}), "as JSON it has more than 999000 bytes"),
    ],
)
def test_an_event_that_fails_a_check_rejects_the_batch_at_the_step_of_the_check(broker, bad, detail):
    """Reference publishing#binary-checks."""
    create(broker)
    items = rejections(broker, order(), bad, order())
    assert [(item.publishing_status, item.step) for item in items] == [
        ("aborted", "validating"),
        ("failed", "validating"),
        ("aborted", "none"),
    ]
    assert detail in items[1].detail
    assert items[0].eid == EID


def test_an_event_type_without_an_avro_schema_is_rejected(broker):
    create(broker, schema=SubmittedSchema(type="json_schema", schema=SCHEMA))
    (item,) = rejections(broker, order())
    assert item.detail == f'version "1.0.0" of the schema of EventType "{NAME}" is a json_schema: publish in JSON'


EIGHT = {"default_statistic": Statistic(messages_per_minute=1, message_size=1, read_parallelism=8, write_parallelism=8)}


def test_partition_keys_choose_the_same_partition_as_in_json(broker):
    """Reference publishing#binary-partitioning."""
    create(broker, partition_strategy="hash", partition_key_fields=("order_id",), **EIGHT)
    publish(broker, order(partition_keys=["A1", "Super Shirt"]), order(partition_keys=["ABC-123"]))
    found = {event["metadata"]["partition_keys"][0]: event["metadata"]["partition"] for event in stored(broker, 8)}
    assert found == {"A1": "7", "ABC-123": "1"}


@pytest.mark.parametrize("metadata", [{}, {"partition_keys": None}, {"partition_keys": []}])
def test_hash_partitioning_needs_partition_keys(broker, metadata):
    """Reference publishing#binary-partitioning."""
    create(broker, partition_strategy="hash", partition_key_fields=("order_id",), **EIGHT)
    items = rejections(broker, order(partition_keys=["a"]), order(**metadata), order())
    assert [(item.publishing_status, item.step) for item in items] == [
        ("aborted", "partitioning"),
        ("failed", "partitioning"),
        ("aborted", "validating"),
    ]
    assert items[1].detail == "Cannot calculate hash value for partitioning: partition keys not set."


def test_publishers_may_name_the_partition(broker):
    """Reference publishing#binary-partitioning."""
    create(broker, partition_strategy="user_defined", **EIGHT)
    publish(broker, order(partition="5"))
    assert stored(broker, 8)[0]["metadata"]["partition"] == "5"
    (item,) = publish(broker, order(partition="9")).rejected
    assert (item.step, item.detail) == (
        "partitioning",
        "Failed to resolve partition. Invalid partition specified when publishing event: 9",
    )


def test_compacted_event_types_need_a_key(broker):
    """Reference publishing#binary-checks."""
    create(broker, cleanup_policy="compact")
    assert "partition_compaction_key must be there" in rejections(broker, order())[0].detail
    assert publish(broker, order(partition_compaction_key="key")).events == 1


def test_events_of_category_undefined_are_not_enriched(broker):
    create(broker, category="undefined", enrichment_strategies=())
    publish(broker, order(published_by="me"))
    assert stored(broker)[0]["metadata"] == {
        "eid": EID,
        "occurred_at": "2023-11-14T22:13:20.000Z",
        "event_type": NAME,
        "version": "1.0.0",
        "published_by": "me",
    }


def test_authorization_is_checked_before_the_body(broker):
    """Reference publishing#binary-steps."""
    alice = Attribute("user", "alice")
    with pytest.raises(EventTypeNotFound):
        send(broker, b"{", name="nope")
    create(broker, authorization=EventTypeAuthorization(admins=(alice,), readers=(alice,), writers=(alice,)))
    with pytest.raises(AccessDenied):
        send(broker, b"{", subject=Subject(name="bob"))
    with pytest.raises(Malformed, match="has to begin with the bytes C3 01"):
        send(broker, b"{", subject=Subject(name="alice", attributes=frozenset({alice})))
    broker.do(AddBlacklistEntry(type="PRODUCER_ET", name=NAME))
    with pytest.raises(Blocked):
        send(broker, b"{")


def wide():
    """A datum of one byte whose JSON has 200 kB."""
    return record(*[("x" * 1_000 + str(n), "null") for n in range(200)], ("z", "boolean"), name="Wide")


def test_events_whose_json_is_long_are_stored(broker):
    create(broker, schema=avro_schema(wide()))
    assert publish(broker, *[envelope(b"\x00")] * 10).events == 10


def test_a_batch_whose_json_is_much_too_long_is_rejected(broker):
    """Reference publishing#binary-limits."""
    create(broker, schema=avro_schema(wide()))
    with pytest.raises(TooLarge, match="Batch too large: more than 50000000 bytes as JSON"):
        publish(broker, *[envelope(b"\x00")] * 300)


# --- repeated batches, and deletion ---


def test_a_batch_with_a_key_is_stored_once(broker):
    create(broker)
    command = PublishEvents(event_type=NAME, body=batch(order(), order()), flow_id="flow", idempotency_key="key")
    first, second = (broker.avro_publisher.publish(command, BROKER) for _ in range(2))
    assert [(each.events, each.duplicates) for each in (first, second)] == [(2, 0), (0, 2)]
    assert len(stored(broker)) == 2


def delete(broker, *envelopes, subject=BROKER):
    command = DeleteEvents(event_type=NAME, body=batch(*envelopes), flow_id="flow")
    return broker.avro_publisher.delete(command, subject)


def test_a_deletion_stores_a_tombstone_for_the_key(broker):
    create(broker, cleanup_policy="compact")
    publish(broker, order(partition_compaction_key="key"))
    assert delete(broker, envelope(b"", partition_compaction_key="key")).events == 1
    topic = broker.registry.timelines(NAME).active.topic
    headers = [each for chunk in broker.store.read(topic, 0, 0, 1_000_000) for each in chunk.headers]
    assert [(each.key, each.avro) for each in headers] == [("key", datum(GOOD)), ("key", None)]


def test_deletions_from_an_unsuitable_event_type_are_rejected_before_authorization_and_body(broker):
    """Reference publishing#binary-steps."""
    alice = Attribute("user", "alice")
    create(broker, authorization=EventTypeAuthorization(admins=(alice,), readers=(alice,), writers=(alice,)))
    command = DeleteEvents(event_type=NAME, body=b"{", flow_id="flow")
    with pytest.raises(Invalid, match="non compacted event type"):
        broker.avro_publisher.delete(command, Subject(name="bob"))


def test_a_deletion_has_no_payload(broker):
    """Reference publishing#binary-checks."""
    create(broker, cleanup_policy="compact")
    (item,) = delete(broker, order(partition_compaction_key="key")).rejected
    assert (item.step, item.detail) == ("validating", "Payload must be empty to delete events.")
