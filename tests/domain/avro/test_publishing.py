import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.access.authorization import Attribute
from rioni.domain.avro.envelopes import read_publishing_batch
from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.avro.publishing import prepare_avro, prepare_avro_deletion
from rioni.domain.errors import AccessDenied, Invalid, Malformed, TooLarge
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.publishing.headers import Headers
from rioni.domain.publishing.rules import Publication, PublishRules
from tests.support.avro import EID, ORDER, avro_schema, batch, datum, envelope
from tests.support.avro_strategies import schemas, values
from tests.support.builders import event_type


DATUM = datum({"order_id": "1", "amount": 5})
JSON_BYTES_MAX = 50_000_000
KEY = {"partition_compaction_key": "key"}


def rules(**changes):
    return PublishRules.of(event_type(schema=avro_schema(), **changes), partitions=changes.pop("partitions", 1))


def publication(**changes):
    return Publication(received_at="2023-11-14T22:13:20.000Z", flow_id="flow", publisher="me", **changes)


def prepare(by, *envelopes, **changes):
    found = read_publishing_batch(batch(*envelopes), 100)
    schemas = {"1.0.0": EventSchema(json.dumps(ORDER), 999_000)}
    return prepare_avro(found, schemas, by, publication(**changes), Random(0), bytes_max=JSON_BYTES_MAX)


def delete(by, *envelopes, **changes):
    return prepare_avro_deletion(read_publishing_batch(batch(*envelopes), 100), by, publication(**changes), Random(0))


def test_the_datum_is_stored_as_it_was_published():
    assert prepare(rules(), envelope(DATUM)).headers == {0: [Headers(avro=DATUM)]}


def test_the_same_headers_are_stored_as_for_events_in_json():
    compacted = prepare(rules(cleanup_policy="compact"), envelope(DATUM, **KEY), subscription_id=EID)
    assert compacted.headers == {0: [Headers(key="key", subscription_id=EID, avro=DATUM)]}


SELECTORS = [
    (EventOwnerSelector(type="static", name="team", value="a"), "a"),
    (EventOwnerSelector(type="path", name="team", value="order_id"), "1"),
    (EventOwnerSelector(type="path", name="team", value="metadata.event_owner"), "mine"),
    (EventOwnerSelector(type="path", name="team", value="metadata.published_by"), "me"),
]


@pytest.mark.parametrize(("selector", "owner"), SELECTORS)
def test_owners_are_found_as_in_json(selector, owner):
    asked = []
    prepared = prepare(
        rules(event_owner_selector=selector),
        envelope(DATUM, event_owner="mine"),
        check_owner=lambda found, eid: asked.append((found, eid)),
    )
    assert asked == [(Attribute("team", owner), EID)]
    assert prepared.headers[0][0].owner == Attribute("team", owner)


def test_a_publisher_without_the_owners_right_is_rejected():
    def deny(_owner, eid):
        raise AccessDenied("WRITE", f"event:{eid}")

    (item,) = prepare(rules(event_owner_selector=SELECTORS[0][0]), envelope(DATUM), check_owner=deny).rejected
    assert (item.publishing_status, item.detail) == ("failed", f"Access on WRITE event:{EID} denied")


def test_events_that_are_stored_once_have_ids():
    once = rules(annotations={"rioni.io/idempotent-publishing": "on"})
    (name,) = prepare(once, envelope(DATUM)).ids[0]
    assert name.endswith(EID)


@given(st.data())
def test_consumers_of_json_get_the_published_values(data):
    schema = data.draw(schemas())
    value = data.draw(values(schema))
    found = read_publishing_batch(batch(envelope(datum(value, schema))), 100)
    prepared = prepare_avro(
        found,
        {"1.0.0": EventSchema(json.dumps(schema), 999_000)},
        rules(),
        publication(),
        Random(0),
        bytes_max=JSON_BYTES_MAX,
    )
    (stored,) = prepared.batches[0]
    event = json.loads(stored)
    assert event.pop("metadata")["eid"] == EID
    assert event.keys() == {field["name"] for field in schema["fields"]}


@given(st.data())
def test_a_changed_body_is_rejected_or_stored_as_json(data):
    body = bytearray(batch(envelope(DATUM, partition="0", span_ctx="{}", parent_eids=[EID]), envelope(DATUM)))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(10, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read_publishing_batch(bytes(body), 100)
    except (Malformed, TooLarge):
        return
    named = {each.metadata.version: "no such version" for each in found}
    prepared = prepare_avro(
        found,
        named | {"1.0.0": EventSchema(json.dumps(ORDER), 999_000)},
        rules(),
        publication(),
        Random(0),
        bytes_max=JSON_BYTES_MAX,
    )
    assert len(prepared.rejected or prepared.partitions) == len(found)
    for stored in prepared.batches.get(0, ()):
        assert b"\n" not in stored
        assert json.loads(stored)["metadata"]["event_type"] == "order.created"


# --- deletion ---


COMPACTED = rules(cleanup_policy="compact")


def test_a_deletion_is_a_tombstone_with_the_key():
    prepared = delete(COMPACTED, envelope(b"", **KEY))
    assert (prepared.batches, prepared.headers) == ({0: [b""]}, {0: [Headers(key="key")]})


@pytest.mark.parametrize(
    ("bad", "detail"),
    [
        (envelope(b"x", **KEY), "Payload must be empty to delete events."),
        (envelope(b""), "metadata.partition_compaction_key must be there, as the event type is compacted"),
        (envelope(b"", event_type="other", **KEY), "event type does not match"),
    ],
)
def test_a_deletion_that_fails_a_check_rejects_the_batch(bad, detail):
    """Reference publishing#binary-checks."""
    prepared = delete(COMPACTED, envelope(b"", **KEY), bad)
    assert [(item.publishing_status, item.step) for item in prepared.rejected] == [
        ("aborted", "validating"),
        ("failed", "validating"),
    ]
    assert prepared.rejected[1].detail == detail


def test_events_that_are_not_compacted_can_not_be_deleted():
    with pytest.raises(Invalid, match="non compacted event type"):
        delete(rules(), envelope(b"", **KEY))


@pytest.mark.parametrize("selector", [selector for selector, _ in SELECTORS])
def test_a_deletion_removes_the_event_of_the_owner_that_it_names(selector):
    """Reference publishing#delete-events."""
    by = rules(event_owner_selector=selector, cleanup_policy="compact")
    checked = []

    def check_owner(owner, _eid):
        checked.append(owner)

    owner = "1" if selector.value == "order_id" else "mine"
    says = {"check_owner": check_owner}
    published = prepare(by, envelope(DATUM, event_owner=owner, **KEY), **says).headers
    deleted = delete(by, envelope(b"", event_owner=owner, **KEY), **says).headers
    assert deleted[0][0].key == published[0][0].key != "key"
    assert checked[0] == checked[1]
    assert prepare(by, envelope(DATUM, **KEY)).headers[0][0].key == "key", "the feature is off"
