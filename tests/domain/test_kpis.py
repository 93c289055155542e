"""Turning the lines of a spool into KPI events."""

from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.kpis import (
    ACCESS_LOG,
    BATCH_PUBLISHED,
    DATA_STREAMED,
    BatchPublished,
    BatchStreamed,
    RequestServed,
    line_of,
    reports_of,
)
from rioni.domain.system.system_events import pseudonymize


SPOOL = UUID("0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11")
PUBLISHED = BatchPublished(
    at_ms=1_700_000_000_000,
    event_type="order.created",
    app="application",
    token_realm="employees",
    number_of_events=3,
    ms_spent=12,
    batch_size=400,
)
STREAMED = BatchStreamed(
    at_ms=1_700_000_000_000,
    stream="a",
    api="hila",
    subscription="s",
    event_type="order.created",
    app="application",
    token_realm="employees",
    number_of_events=3,
    bytes_streamed=500,
)


def test_the_hash_of_an_application_is_as_in_the_contract():
    assert pseudonymize("123", "application") == "befee725ab2ed3b17020112089a693ad8d8cfbf62b2442dcb5b89d66ce72391e"


def test_a_batch_is_one_event_with_the_fields_of_the_contract():
    reports = reports_of(SPOOL, [line_of(PUBLISHED)], "123")
    (event,) = reports.events.pop(BATCH_PUBLISHED)
    assert not reports.events
    assert event.occurred_at == "2023-11-14T22:13:20.000Z"
    assert event.members == {
        "event_type": "order.created",
        "app": "application",
        "app_hashed": "befee725ab2ed3b17020112089a693ad8d8cfbf62b2442dcb5b89d66ce72391e",
        "token_realm": "employees",
        "number_of_events": 3,
        "ms_spent": 12,
        "batch_size": 400,
    }


def test_the_batches_of_a_stream_are_one_event_for_each_event_type():
    other = msgspec.structs.replace(STREAMED, event_type="other")
    last = msgspec.structs.replace(STREAMED, at_ms=STREAMED.at_ms + 1_000, number_of_events=4)
    events = reports_of(SPOOL, map(line_of, [STREAMED, other, last]), "salt").events[DATA_STREAMED]
    first, second = events
    assert (first.members["number_of_events"], first.members["bytes_streamed"]) == (7, 1_000)
    assert (first.members["batches_streamed"], second.members["batches_streamed"]) == (2, 1)
    assert first.occurred_at == "2023-11-14T22:13:21.000Z"
    assert first.members.keys() == {
        "api",
        "subscription",
        "event_type",
        "app",
        "app_hashed",
        "token_realm",
        "number_of_events",
        "bytes_streamed",
        "batches_streamed",
    }


def test_lines_damaged_by_a_power_failure_are_left_out_and_counted():
    damaged = [b"", b"\0\0\0", line_of(PUBLISHED)[:-5], b'["x",1]', b"[]", b"\xff"]
    reports = reports_of(SPOOL, [line_of(PUBLISHED), *damaged, line_of(PUBLISHED)], "salt")
    assert len(reports.events[BATCH_PUBLISHED]) == 2
    assert reports.unreadable == len(damaged)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(0, 2**31)
PUBLISHED_BATCHES = st.builds(BatchPublished, st.integers(0, 2**41), TEXTS, TEXTS, TEXTS, NUMBERS, NUMBERS, NUMBERS)
STREAMED_BATCHES = st.builds(
    BatchStreamed,
    st.integers(0, 2**41),
    st.sampled_from("ab"),
    st.sampled_from(["lola", "hila"]),
    st.none() | TEXTS,
    st.sampled_from(["x", "y"]),
    TEXTS,
    TEXTS,
    NUMBERS,
    NUMBERS,
)
ACCESSES = st.builds(
    RequestServed,
    st.integers(0, 2**41),
    *[TEXTS] * 6,
    st.integers(100, 599),
    NUMBERS,
    TEXTS,
    TEXTS,
    NUMBERS,
    NUMBERS,
)


@given(st.lists(PUBLISHED_BATCHES | STREAMED_BATCHES | ACCESSES))
def test_each_measurement_is_one_line_and_none_is_lost_or_duplicated(measurements):
    spooled = b"".join(map(line_of, measurements))
    assert spooled.count(b"\n") == len(measurements)
    reports = reports_of(SPOOL, spooled.splitlines(), "salt")
    again = reports_of(SPOOL, spooled.splitlines(), "salt")
    assert reports == again
    assert reports.unreadable == 0
    events = [event for some in reports.events.values() for event in some]
    assert len({event.eid for event in events}) == len(events)
    streamed = [each for each in measurements if isinstance(each, BatchStreamed)]
    for name, kind in ((BATCH_PUBLISHED, BatchPublished), (ACCESS_LOG, RequestServed)):
        assert len(reports.events.get(name, [])) == sum(isinstance(each, kind) for each in measurements)
    reported = [event.members for event in reports.events.get(DATA_STREAMED, [])]
    for total in ("number_of_events", "bytes_streamed"):
        assert sum(members[total] for members in reported) == sum(getattr(each, total) for each in streamed)
    assert sum(members["batches_streamed"] for members in reported) == len(streamed)
