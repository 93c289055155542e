import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.avro.binary import CONSUMPTION, PUBLISHING, batch_schema
from rioni.domain.avro.envelopes import TEXTS_MAX, read_publishing_batch
from rioni.domain.errors import Malformed, TooLarge
from tests.support.avro import EID, batch, datum, envelope


FULL = {
    "flow_id": "flow",
    "received_at": 5,
    "published_by": "me",
    "partition": "0",
    "partition_keys": ["a", "b"],
    "partition_compaction_key": "key",
    "parent_eids": [EID],
    "span_ctx": "{}",
}


def read(body, events_max=100):
    return read_publishing_batch(body, events_max)


@pytest.mark.parametrize("version", ["0", "1"])
@pytest.mark.parametrize("metadata", [{}, FULL])
def test_batches_of_another_library_are_read(version, metadata):
    """Reference schemas#batch-schema-versions."""
    (found,) = read(batch(envelope(b"datum", **metadata), version=version))
    assert found.payload == b"datum"
    assert (found.metadata.eid, found.metadata.occurred_at) == (EID, 1_700_000_000_000)
    for name in FULL:
        assert getattr(found.metadata, name) == metadata.get(name)


def test_only_version_1_contains_the_owner():
    """Reference schemas#batch-schema-versions."""
    assert read(batch(envelope(b"", event_owner="me")))[0].metadata.event_owner == "me"


def test_a_batch_may_be_empty():
    assert read(batch()) == []


HEADER = batch_schema(PUBLISHING, "1").header
KEYS = b"\x00" * 8 + b"\x02"
"""Metadata up to the partition keys, which are present."""
ONE = batch(envelope(b"x"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "has to begin with the bytes C3 01"),
        (b"[]", "has to begin with the bytes C3 01"),
        (b"\xc3\x01", "has to begin with the bytes C3 01"),
        (b"\xc3\x01" + b"\x00" * 8, "no version of batch.publishing has the fingerprint 0000000000000000"),
        (batch_schema(CONSUMPTION, "1").header, "no version of batch.publishing has the fingerprint"),
        (HEADER, "ends too early"),
        (HEADER + b"\x02", "items"),
        (ONE[:-2], "ends too early"),
        (ONE + b"\x00", "1 bytes follow after the end of the batch"),
        (HEADER + b"\xfe" + b"\xff" * 8 + b"\x01", "items"),
        (HEADER + b"\x01\x02" + ONE[11:], "a block ends at byte"),
        (HEADER + b"\x02" + KEYS + b"\x01\x06\x02a\x00", "a block ends at byte"),
        (batch(envelope(b"", partition_keys=[""] * (TEXTS_MAX + 1))), f"more than {TEXTS_MAX} items"),
    ],
)
def test_an_invalid_body_is_rejected_with_the_reason(body, message):
    """Reference publishing#binary-steps, publishing#binary-limits."""
    with pytest.raises(Malformed, match="Error occurred when parsing event") as caught:
        read(body)
    assert message in str(caught.value)


def test_more_events_than_allowed_are_rejected_before_they_are_read():
    """Reference publishing#binary-limits."""
    with pytest.raises(TooLarge, match="more than 2 events"):
        read(batch(*[envelope(b"")] * 3), events_max=2)
    with pytest.raises(TooLarge):
        read(HEADER + b"\x08" + b"\x00" * 10, events_max=2)


@given(st.binary(max_size=100))
def test_any_bytes_behind_the_header_are_rejected_or_read(tail):
    for body in (tail, HEADER + tail, batch_schema(PUBLISHING, "0").header + tail):
        assert is_rejected_or_read(body)


def is_rejected_or_read(body):
    """Whether a body is rejected with a reason, or all payloads read are part of it."""
    try:
        found = read(body)
    except (Malformed, TooLarge) as ex:
        return str(ex)
    return len(found) <= len(body) and all(each.payload in body for each in found)


@given(st.data())
def test_a_changed_batch_is_rejected_or_read(data):
    body = bytearray(batch(envelope(datum({"order_id": "1", "amount": 2}), **FULL), envelope(b"x")))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    for mutant in (body, body[: data.draw(st.integers(0, len(body)))]):
        assert is_rejected_or_read(bytes(mutant))
