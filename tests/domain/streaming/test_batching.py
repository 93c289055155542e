"""Buffers and ranges hold what a plain list of events would hold, whatever is added, taken, committed or dropped."""

from bisect import bisect_left, bisect_right

from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.ports.event_store import Chunk
from rioni.domain.publishing.headers import Headers, headers_bytes
from rioni.domain.streaming.batching import Buffer, Ranges, Visibility
from rioni.domain.timelines.position import TimelinePosition


READER = "reader"
HIDDEN, SHOWN = Headers(subscription_id="another"), Headers(subscription_id=READER)
VISIBILITY = Visibility(subscription_id=READER)
EVENT = b'{"n":1}'

chunks_of_events = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.lists(st.booleans(), min_size=1, max_size=6)), max_size=6
)
"""For each chunk: whether a timeline begins, how many positions before it are missing, and which events are visible."""


def chunks(description) -> list[tuple[int, Chunk, list[TimelinePosition], list[TimelinePosition]]]:
    """For each chunk its timeline, itself, and the places of its visible and its hidden events."""
    found, order, position = [], 1, 0
    for begins, gap, visible in description:
        order, position = (order + 1, 0) if begins else (order, position + gap)
        headers = None if all(visible) else [SHOWN if shown else HIDDEN for shown in visible]
        ends = [(len(EVENT) + 1) * number - 1 for number in range(1, len(visible) + 1)]
        chunk = Chunk(position, 1_000 * len(found), b",".join([EVENT] * len(visible)), ends, headers)
        places = [TimelinePosition(order, position + number) for number in range(len(visible))]
        shown = [place for place, seen in zip(places, visible, strict=True) if seen]
        found.append((order, chunk, shown, [place for place in places if place not in shown]))
        position = chunk.next
    return found


def buffer_of(described) -> tuple[Buffer, list[TimelinePosition]]:
    buffer, expected = Buffer(), []
    for order, chunk, shown, hidden in described:
        filtered = buffer.add(order, [chunk], chunk.first, VISIBILITY)
        assert [TimelinePosition(order, each) for pair in filtered for each in range(*pair)] == hidden
        expected += shown
    return buffer, expected


def held(buffer: Buffer) -> list[TimelinePosition]:
    """The places of all events of a buffer, which is empty afterwards."""
    return [TimelinePosition(each.order, n) for each in buffer.take(buffer.count) for n in range(each.start, each.stop)]


def check(buffer: Buffer, described, expected: list[TimelinePosition]) -> None:
    kept = [
        chunk
        for order, chunk, shown, _ in described
        if any(place in expected for place in shown if place.order == order)
    ]
    assert buffer.count == len(expected)
    assert buffer.bytes == sum(len(chunk.data) + headers_bytes(chunk.headers) for chunk in kept)
    assert buffer.first == (expected[0] if expected else None)
    assert buffer.first_recorded_at_ms() == (kept[0].recorded_at_ms if kept else None)
    assert held(buffer) == expected
    assert (buffer.count, buffer.bytes, buffer.first) == (0, 0, None)


@given(chunks_of_events, st.integers(0, 40))
def test_a_buffer_gives_the_first_events_and_keeps_the_rest(description, count):
    described = chunks(description)
    buffer, expected = buffer_of(described)
    taken = [TimelinePosition(each.order, n) for each in buffer.take(count) for n in range(each.start, each.stop)]
    assert taken == expected[:count]
    check(buffer, described, expected[count:])


@given(chunks_of_events, st.integers(0, 3), st.integers(-1, 12))
def test_a_buffer_drops_the_events_up_to_a_place(description, order, position):
    described, place = chunks(description), TimelinePosition(order, position)
    buffer, expected = buffer_of(described)
    buffer.drop(place)
    check(buffer, described, expected[bisect_right(expected, place) :])


@given(chunks_of_events, st.integers(0, 8).map(lambda half: 500 * half))
def test_a_buffer_counts_whole_chunks_before_a_time_once_a_later_event_has_come(description, recorded_at_ms):
    described = chunks(description)
    buffer, _ = buffer_of(described)
    sizes = [(chunk.recorded_at_ms, len(shown)) for _, chunk, shown, _ in described if shown]
    before = [size for at_ms, size in sizes if at_ms < recorded_at_ms]
    complete = bool(sizes) and sizes[-1][0] >= recorded_at_ms
    assert buffer.complete_before(recorded_at_ms) == ((sum(before) or sizes[0][1]) if complete else 0)


ranges_of_positions = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 5)), max_size=6)
"""For each range: whether a timeline begins, how many positions before it are missing, and its length."""


def ranges_of(description) -> tuple[Ranges, list[TimelinePosition]]:
    ranges, expected, order, position = Ranges(), [], 1, 0
    for begins, gap, length in description:
        order, position = (order + 1, 0) if begins else (order, position + gap)
        ranges.add(order, position, position + length)
        expected += [TimelinePosition(order, position + number) for number in range(length)]
        position += length
    assert (ranges.count, ranges.first) == (len(expected), expected[0] if expected else None)
    return ranges, expected


def left(ranges: Ranges) -> list[TimelinePosition]:
    """The places of all events that are left, found by committing one after the other."""
    found = []
    while ranges.first is not None:
        found.append(ranges.first)
        assert ranges.commit(ranges.first) == 1
    assert ranges.count == 0
    return found


@given(ranges_of_positions, st.integers(0, 3), st.integers(-1, 20))
def test_committing_drops_the_events_up_to_a_place_and_counts_them(description, order, position):
    (ranges, expected), place = ranges_of(description), TimelinePosition(order, position)
    behind = expected[bisect_right(expected, place) :]
    assert ranges.commit(place) == len(expected) - len(behind)
    assert ranges.count == len(behind)
    assert left(ranges) == behind


@given(ranges_of_positions, st.integers(0, 3), st.integers(-1, 20))
def test_ranges_before_and_behind_an_event_in_none_of_them_are_dropped(description, order, position):
    place = TimelinePosition(order, position)
    (first, expected), (second, _) = ranges_of(description), ranges_of(description)
    if place in expected:
        return
    border = bisect_left(expected, place)
    assert first.take_before(place) == (expected[border - 1] if border else None)
    assert first.count == len(expected) - border
    assert left(first) == expected[border:]
    second.cut(place)
    assert second.count == border
    assert left(second) == expected[:border]


@given(ranges_of_positions)
def test_all_ranges_are_taken_at_once(description):
    ranges, expected = ranges_of(description)
    assert ranges.take_before(None) == (expected[-1] if expected else None)
    assert (ranges.count, ranges.first) == (0, None)


def test_neighbouring_ranges_become_one():
    ranges = Ranges()
    for order, start, stop in ((1, 0, 3), (1, 3, 5), (2, 5, 6), (2, 7, 8)):
        ranges.add(order, start, stop)
    assert ranges._ranges == [(1, 0, 5), (2, 5, 6), (2, 7, 8)]
