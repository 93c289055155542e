import io
import json
from uuid import UUID

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.avro.binary import CONSUMPTION, batch_schema
from rioni.domain.avro.envelopes import NO_EID, StoredEvent, write_batch, write_block
from tests.support.avro import EID


SCHEMA = batch_schema(CONSUMPTION, "1")
CURSOR = {
    "partition": "0",
    "offset": "001-0001-000000000000000001",
    "event_type": "order.created",
    "cursor_token": "x",
}
METADATA = {
    "eid": EID,
    "occurred_at": "2026-11-20T10:00:00.123456789Z",
    "received_at": "2026-11-20T11:00:00.5+01:00",
    "version": "1.0.0",
    "flow_id": "flow",
    "published_by": "me",
    "partition": "0",
    "parent_eids": [EID],
    "span_ctx": {"a": "b"},
}


def stored(event, datum=None):
    return StoredEvent("order.created", json.dumps(event).encode(), datum, 1_700_000_000_000)


def read(message):
    assert message.startswith(SCHEMA.header)
    body = io.BytesIO(message.removeprefix(SCHEMA.header))
    batch = fastavro.schemaless_reader(body, fastavro.parse_schema(dict(SCHEMA.document)), None)
    assert body.read() == b""
    return batch


def only(event, datum=None):
    (envelope,) = read(write_batch(CURSOR, [write_block([stored(event, datum)])], ""))["events"]
    return envelope


def test_a_batch_contains_the_same_as_in_json():
    batch = read(write_batch(CURSOR, [], "Stream timeout reached"))
    assert batch == {"cursor": CURSOR, "events": [], "info": "Stream timeout reached"}
    assert read(write_batch(CURSOR, [], "")) == {"cursor": CURSOR, "events": [], "info": None}


def test_the_schema_is_the_one_that_clients_of_nakadi_know():
    """Compared by its fingerprint, which depends on names, order and types of all fields.

    Source: reference schemas#batch-schema-versions, streams#avro-batches.
    """
    assert SCHEMA.header.hex(" ") == "c3 01 45 1a 7f 60 89 e7 f5 7e"
    for version, names in {"0": ("ConsumptionBatchV0", "EnvelopeV0"), "1": ("ConsumptionBatch", "Envelope")}.items():
        document = batch_schema(CONSUMPTION, version).document
        cursor, info, events = document["fields"]
        assert (document["name"], events["type"]["items"]["name"]) == names
        assert (document["namespace"], info["name"]) == ("org.zalando.nakadi.generated.avro", "info")
        assert cursor["type"]["name"] == "SubscriptionCursor"
        assert {field["name"]: field["type"] for field in cursor["type"]["fields"]} == dict.fromkeys(CURSOR, "string")


def test_events_of_several_blocks_are_in_order():
    events = [stored({"metadata": METADATA}, str(number).encode()) for number in range(5)]
    batch = read(write_batch(CURSOR, [write_block(events[:2]), write_block(events[2:])], ""))
    assert [each["payload"] for each in batch["events"]] == [b"0", b"1", b"2", b"3", b"4"]


def test_the_metadata_are_as_stored():
    metadata = only({"metadata": METADATA}, b"datum")["metadata"]
    assert metadata.pop("occurred_at").isoformat() == "2026-11-20T10:00:00.123000+00:00"
    assert metadata.pop("received_at").isoformat() == "2026-11-20T10:00:00.500000+00:00"
    assert metadata == {
        "eid": UUID(EID),
        "version": "1.0.0",
        "flow_id": "flow",
        "published_by": "me",
        "event_type": "order.created",
        "partition": "0",
        "parent_eids": [UUID(EID)],
        "span_ctx": '{"a":"b"}',
        "partition_keys": None,
        "partition_compaction_key": None,
        "event_owner": None,
    }


def test_an_event_in_json_is_its_own_payload():
    event = {"a": 1, "metadata": METADATA}
    assert json.loads(only(event)["payload"]) == event


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"metadata": None},
        {"metadata": 5},
        {"metadata": {"eid": 5}},
        {"metadata": {"eid": "nope", "occurred_at": "nope", "parent_eids": ["nope"]}},
        {"metadata": {"occurred_at": "2026-11-20T10:00:00"}},
        {"metadata": {"occurred_at": "0000-11-20T10:00:00Z"}},
    ],
)
def test_missing_metadata_are_filled_in(event):
    envelope = only(event)
    metadata = envelope["metadata"]
    assert (metadata["eid"], metadata["version"], metadata["parent_eids"]) == (UUID(NO_EID), "", None)
    assert metadata["occurred_at"].timestamp() == 1_700_000_000
    assert json.loads(envelope["payload"]) == event


@given(
    st.dictionaries(st.sampled_from(sorted(METADATA)), st.one_of(st.text(), st.integers(), st.none(), st.booleans()))
)
def test_any_metadata_can_be_written(metadata):
    assert only({"metadata": metadata})["metadata"]["event_type"] == "order.created"
