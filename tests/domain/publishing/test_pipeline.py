"""The processing of the events of a batch, and its results: reference publishing#results."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Malformed, RioniError, TooLarge
from rioni.domain.limits import Limits
from rioni.domain.publishing.pipeline import partial_results
from rioni.domain.publishing.results import ItemResult
from tests.support.publishing import BUSINESS, event, item, publish, rejections, rules
from tests.support.strategies import EID, as_written, event_texts, texts


OPEN = rules(schema={}, partitions=8)
HASH = rules(partition_strategy="hash", partition_key_fields=("brand", "order_id"), partitions=8)
USER_DEFINED = rules(partition_strategy="user_defined", partitions=3)
UNDEFINED = rules(category="undefined", enrichment_strategies=(), schema={}, partitions=2)


# --- stored events ---


def test_a_valid_event_is_stored_with_enriched_metadata():
    prepared = publish([event()])
    assert not prepared.rejected
    (stored,) = prepared.batches[0]
    assert json.loads(stored) == event(
        metadata={
            "published_by": "unauthenticated",
            "received_at": "2024-01-02T03:04:05.123Z",
            "event_type": "order.created",
            "flow_id": "AbC",
            "partition": "0",
            "version": "1.0.0",
        }
    )


def test_an_empty_batch_stores_and_rejects_nothing():
    prepared = publish([])
    assert (prepared.rejected, prepared.batches) == ((), {})


def test_an_undefined_event_is_stored_unchanged():
    body = b' [ { "a" : 1.0, "b":"\\u00e9" } ,{"c":12345678901234567}] '
    batches = publish(body, UNDEFINED).batches
    assert sorted(event for events in batches.values() for event in events) == [
        b'{ "a" : 1.0, "b":"\\u00e9" }',
        b'{"c":12345678901234567}',
    ]


def test_stored_events_have_no_line_breaks():
    """Reference publishing#stored-form."""
    body = json.dumps([{"a": {"b": ["\n\t"]}}], indent="\t").replace("\n", "\r\n").encode()
    ((stored,),) = publish(body, UNDEFINED).batches.values()
    assert not set(stored) & set(b"\r\n\t")
    assert json.loads(stored) == {"a": {"b": ["\n\t"]}}


def test_every_partition_gets_its_events_in_order():
    """Reference cursors#partition-order."""
    events = [event(metadata={"partition": str(n * n % 3)}, n=n) for n in range(20)]
    prepared = publish(events, USER_DEFINED)
    assert prepared.partitions == [n * n % 3 for n in range(20)]
    assert {
        partition: [json.loads(stored)["n"] for stored in batch] for partition, batch in prepared.batches.items()
    } == {
        0: [n for n in range(20) if n % 3 == 0],
        1: [n for n in range(20) if n % 3 != 0],
    }


def test_the_partition_in_the_metadata_is_that_of_the_event():
    events = [event(brand=str(n), metadata={"partition": "99"}) for n in range(20)]
    for partition, batch in publish(events, HASH).batches.items():
        assert {json.loads(stored)["metadata"]["partition"] for stored in batch} == {str(partition)}


def test_key_fields_of_data_events_are_inside_their_data():
    """Reference event-types#partition-strategies."""
    by = rules(category="data", partition_strategy="hash", partition_key_fields=("order_id",), partitions=8)
    wrapped = {"metadata": event()["metadata"], "data_type": "order", "data_op": "C", "data": {"order_id": "ABC-123"}}
    assert list(publish([wrapped], by).batches) == [1]


SPAN_CONTEXTS = st.none() | st.dictionaries(texts, texts, min_size=1, max_size=2)


@given(st.lists(event_texts(), max_size=4), SPAN_CONTEXTS)
def test_no_byte_of_a_payload_changes(written, span_ctx):
    """Reference publishing#stored-form."""

    def payload(members):
        return [member for member in members[1:] if member[0] != "metadata"]

    body = f"[{','.join(written)}]".encode()
    try:
        prepared = publish(body, OPEN, span_ctx=span_ctx)
    except Malformed:  # a number in another member is beyond 64 bits
        return
    assert not prepared.rejected
    remaining = {partition: iter(batch) for partition, batch in prepared.batches.items()}
    stored = [next(remaining[partition]) for partition in prepared.partitions]
    assert [payload(as_written(one)) for one in stored] == [payload(as_written(text)) for text in written]


# --- rejected batches ---


def test_a_failed_validation_aborts_the_others():
    """Reference publishing#refused-batches."""
    assert rejections([event(0), event(1, order_id=2), event(2)]) == [
        item("aborted", "validating", 0),
        item("failed", "validating", 1, "#/order_id: expected type: String, found: Integer"),
        item("aborted", "none", 2),
    ]


def test_a_failed_partitioning_aborts_the_others():
    """Reference publishing#refused-batches."""
    events = [event(0, brand="x"), event(1), event(2, brand="y")]
    first = publish(events[:1], HASH).partitions[0]
    assert rejections(events, HASH) == [
        item("aborted", "partitioning", 0, partition=str(first)),
        item("failed", "partitioning", 1, "field brand doesn't exist."),
        item("aborted", "validating", 2),
    ]


@pytest.mark.parametrize(
    ("metadata", "detail"),
    [
        ({}, "Failed to resolve partition. Failed to get partition from event metadata"),
        ({"partition": "9"}, "Failed to resolve partition. Invalid partition specified when publishing event: 9"),
    ],
)
def test_the_publisher_has_to_name_an_existing_partition(metadata, detail):
    """Reference publishing#user-defined-strategy."""
    (only,) = rejections([event(0, metadata=metadata)], USER_DEFINED)
    assert (only["step"], only["detail"]) == ("partitioning", detail)


def test_a_failed_enrichment_aborts_the_others():
    """Reference publishing#refused-batches."""
    # Impossible for validated events: an undefined event type has no enrichment.
    by = msgspec.structs.replace(UNDEFINED, enriches=True, partitions=1)
    events = [event(0), {"no": "metadata"}, event(2)]
    assert rejections(events, by) == [
        item("aborted", "enriching", 0, partition="0"),
        {
            "publishing_status": "failed",
            "detail": "enrichment error",
            "step": "enriching",
            "partition": "0",
        },
        item("aborted", "partitioning", 2, partition="0"),
    ]


def test_the_size_of_an_event_is_checked_before_its_schema():
    """Reference publishing#event-size, publishing#steps."""
    by = rules(limits=Limits(event_bytes_max=200))
    padding = "x" * (200 - len(json.dumps([event(pad="")])) + 2)
    fits, large = event(pad=padding), event(pad=padding + "x")
    assert publish([fits], by).batches
    assert rejections([fits, large, event(order_id=1)], by)[1]["detail"] == (
        "Event too large: 201 bytes, max size is 200 bytes"
    )
    wrong = {**large, "order_id": 1, "pad": padding + "xxx"}
    assert rejections([wrong], by)[0]["detail"] == "Event too large: 201 bytes, max size is 200 bytes"


def test_the_size_of_an_event_includes_insignificant_spaces():
    """Reference publishing#event-size."""
    body = b"[" + json.dumps(event()).encode().replace(b": ", b":" + b" " * 999_000) + b"]"
    assert publish(body).rejected[0].detail.endswith(" bytes, max size is 999000 bytes")


@pytest.mark.parametrize(
    ("metadata", "eid"),
    [
        ({"eid": EID}, EID),
        ({"eid": EID.upper()}, EID.upper()),
        ({"eid": "x"}, "x"),
        ({"eid": ""}, ""),
        ({"eid": "ü\n" * 500}, "ü\n" * 500),
        ({"eid": 1}, "1"),
        ({"eid": 1.5}, "1.5"),
        ({"eid": True}, "true"),
        ({"eid": None}, None),
        ({"eid": {}}, None),
        ({}, None),
        (1, None),
    ],
)
def test_a_result_repeats_the_eid_that_was_sent_valid_or_not(metadata, eid):
    """Even if metadata are missing, the answer is a list of results.

    Source: reference publishing#result-items.
    """
    (only,) = rejections([{"metadata": metadata}])
    assert only.get("eid") == eid
    assert only["step"] == "validating"


def test_a_batch_without_metadata_is_rejected_in_the_results():
    (only,) = rejections([{"order_id": "1"}])
    assert only == {
        "publishing_status": "failed",
        "detail": "#: required key [metadata] not found",
        "step": "validating",
        "partition": None,
    }


def test_a_malformed_batch_is_rejected_as_a_whole():
    with pytest.raises(Malformed, match=r"^Error occurred when parsing event"):
        publish(b'[{"a":1}')


def test_the_limits_of_a_batch_are_set_by_the_rules():
    by = rules(limits=Limits(batch_events_max=1, body_bytes_max=1000))
    with pytest.raises(TooLarge):
        publish([event(0), event(1)], by)
    with pytest.raises(TooLarge):
        publish([event(pad="x" * 1000)], by)


BROKEN = st.binary(max_size=60) | st.lists(
    st.sampled_from([*'[]{},:"\\ ', '"metadata"', '"order_id"', "null", '"a"', "1e9", "-"]), max_size=30
).map(lambda parts: f"[{{{''.join(parts)}}}]".encode())


@given(BROKEN)
def test_any_body_is_answered_without_an_internal_error(body):
    for by in (BUSINESS, HASH, USER_DEFINED, UNDEFINED):
        try:
            prepared = publish(body, by)
        except RioniError:
            continue
        assert not (prepared.rejected and prepared.batches)


# --- after a failed append ---


def test_each_event_has_the_result_of_its_partition():
    """Reference publishing#partial-results."""
    prepared = publish([event(n, metadata={"partition": str(n)}) for n in range(3)], USER_DEFINED)
    results = partial_results(prepared.events, prepared.partitions, {1: "timed out", 2: "internal error"})
    assert msgspec.to_builtins(results) == [
        item("submitted", "publishing", 0, partition="0"),
        item("failed", "publishing", 1, "timed out", partition="1"),
        item("failed", "publishing", 2, "internal error", partition="2"),
    ]


def test_results_have_the_member_order_of_the_contract():
    result = ItemResult(publishing_status="aborted", detail="", step="none", eid=EID)
    assert (
        msgspec.json.encode(result)
        == (f'{{"publishing_status":"aborted","detail":"","step":"none","eid":"{EID}","partition":null}}').encode()
    )
