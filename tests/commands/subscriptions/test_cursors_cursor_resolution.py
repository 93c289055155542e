"""How cursor specs are resolved to positions: reference cursors#cursor-specifications."""

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.cursors import CursorResolver
from rioni.commands.timelines.timelines import StartSwitch
from rioni.domain.errors import Invalid, InvalidCursor, UnavailableCursor
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.timelines.position import TimelinePosition, format_offset
from rioni.domain.timestamps import rfc3339
from rioni.projections.queries.timeline_reader import read_after, recorded_at_ms_after
from tests.support.builders import event_type_spec


NAME = "order.created"


@pytest.fixture
def start_ms(broker):
    """When the first of five events was stored: two at once, one 10 ms later, two switches, two 10 ms later."""
    broker.do(CreateEventType(spec=event_type_spec()))
    start_ms = broker.clock.now_ms()
    publish(broker, b"0", b"1")
    broker.clock.advance(10)
    publish(broker, b"2")
    for _ in range(2):
        broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="default"), broker.context())
    broker.clock.advance(10)
    publish(broker, b"3", b"4")
    return start_ms


def timelines(broker):
    broker.registry.refresh()
    return broker.registry.timelines(NAME)


def publish(broker, *events):
    broker.store.append(timelines(broker).active.topic, {0: events})


def readable(broker, **named):
    return CursorResolver(timelines(broker), broker.stores).readable(
        CursorSpec(event_type=NAME, partition="0", **named)
    )


def following(broker, place):
    """The events after a timeline position."""
    found = []
    while True:
        order, chunks = read_after(timelines(broker), broker.stores, 0, place, 1)
        if not chunks:
            return found
        (chunk,) = chunks
        first = place.position + 1 if place.order == order else 0
        found += chunk.cut(max(first, chunk.first), chunk.next).split(b",")
        place = TimelinePosition(order, chunk.next - 1)


@pytest.mark.parametrize(
    ("named", "events"),
    [
        ({"offset": "BEGIN"}, "01234"),
        ({"offset": "begin", "shift": 2}, "234"),
        ({"offset": "END"}, ""),
        ({"offset": "end", "shift": -1}, "4"),
        ({"offset": "END", "shift": -4}, "1234"),
        ({"offset": "END", "shift": -5}, "01234"),
        ({"offset": "1", "shift": 1}, "34"),
        ({"offset": format_offset(3, 0)}, "4"),
        ({"offset": format_offset(3, -1), "shift": -1}, "234"),
    ],
)
@pytest.mark.usefixtures("start_ms")
def test_offsets_begin_and_end_are_shifted_across_timelines(broker, named, events):
    """Reference cursors#begin, cursors#end, cursors#shifts."""
    assert b"".join(following(broker, readable(broker, **named))).decode() == events


@pytest.mark.parametrize(
    ("after_ms", "shift", "events"),
    [
        (-(10**12), 0, "01234"),
        (0, 0, "01234"),
        (1, 0, "234"),
        (10, 0, "234"),
        (10, -1, "1234"),
        (11, 0, "34"),
        (20, 0, "34"),
        (20, 1, "4"),
        (21, 0, ""),
        (21, -5, "01234"),
        (10**12, 0, ""),
    ],
)
def test_a_timestamp_resolves_to_the_first_event_stored_then_or_later(broker, start_ms, after_ms, shift, events):
    """Reference cursors#timestamps."""
    place = readable(broker, timestamp=rfc3339(start_ms + after_ms), shift=shift)
    assert b"".join(following(broker, place)).decode() == events


def test_expired_events_are_skipped(broker, start_ms):
    """Reference cursors#begin."""
    broker.store.delete_before(timelines(broker).timelines[0].topic, start_ms + 5)
    for named in ({"timestamp": rfc3339(start_ms)}, {"offset": "BEGIN"}):
        assert following(broker, readable(broker, **named)) == [b"2", b"3", b"4"]
    with pytest.raises(Invalid, match="does not exist"):
        readable(broker, offset="END", shift=-4)


@pytest.mark.parametrize(
    ("place", "after_ms"),
    [
        (TimelinePosition(1, -1), 0),
        (TimelinePosition(1, 0), 0),
        (TimelinePosition(1, 1), 10),
        (TimelinePosition(1, 2), 20),
        (TimelinePosition(2, -1), 20),
        (TimelinePosition(3, 0), 20),
        (TimelinePosition(3, 1), None),
        (TimelinePosition(3, 25), None),
    ],
)
def test_the_age_of_the_next_event_is_known_across_timelines(broker, start_ms, place, after_ms):
    at_ms = recorded_at_ms_after(timelines(broker), broker.stores, 0, place)
    assert at_ms == (None if after_ms is None else start_ms + after_ms)


def test_the_age_of_the_next_event_ignores_expired_events(broker, start_ms):
    broker.store.delete_before(timelines(broker).timelines[0].topic, start_ms + 15)
    assert recorded_at_ms_after(timelines(broker), broker.stores, 0, TimelinePosition(1, 0)) == start_ms + 20


@pytest.mark.parametrize(
    ("named", "error", "detail"),
    [
        ({"offset": "BEGIN", "shift": -1}, Invalid, "Timeline not found"),
        ({"offset": "END", "shift": 1}, Invalid, "does not exist"),
        ({"timestamp": "2020-01-01T00:00:00Z", "shift": -1}, Invalid, "Timeline not found"),
        ({"offset": "0", "shift": 2**63 - 1}, Invalid, "does not exist"),
        ({"offset": format_offset(3, 2), "shift": -1}, UnavailableCursor, "is unavailable"),
        ({"offset": "x"}, InvalidCursor, "invalid offset x for partition 0"),
        ({"offset": "END", "partition": "1"}, InvalidCursor, "non existing partition 1"),
        ({"timestamp": "2020-01-01T00:00:00Z", "partition": "1"}, InvalidCursor, "non existing partition 1"),
        ({"offset": "0", "partition": "1"}, InvalidCursor, "non existing partition 1"),
    ],
)
@pytest.mark.usefixtures("start_ms")
def test_cursors_that_cannot_be_read_from_are_rejected(broker, named, error, detail):
    with pytest.raises(error, match=detail):
        CursorResolver(timelines(broker), broker.stores).readable(CursorSpec(**{"partition": "0"} | named))
