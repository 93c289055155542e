import json
import threading

import pytest

from rioni.cli.events.across_partitions import as_they_come, by_time
from rioni.client.ranges import Place, RangePart


def _piece(partition, first, *minutes):
    events = [json.dumps({"metadata": {"received_at": f"2026-01-01T00:{minute:02}:00Z"}}) for minute in minutes]
    last = Place(1, first + len(minutes) - 1)
    return RangePart("orders", partition, Place(1, first), [event.encode() for event in events], last)


def _seen(pieces):
    return [(piece.partition, piece.first.position) for piece in pieces for _ in piece.events]


def test_partitions_are_merged_by_the_times_of_their_events():
    first = [_piece("0", 0, 1, 5), _piece("0", 2, 6)]
    second = [_piece("1", 0, 2, 3), _piece("1", 2, 9)]
    assert _seen(by_time([first, second])) == [("0", 0), ("1", 0), ("1", 1), ("0", 1), ("0", 2), ("1", 2)]


def test_a_partition_keeps_its_order_where_times_decrease_or_are_missing():
    unordered = [_piece("0", 0, 5, 1), RangePart("orders", "0", Place(1, 2), [b"{}"], Place(1, 2))]
    assert _seen(by_time([unordered, [_piece("1", 0, 3)]])) == [("1", 0), ("0", 0), ("0", 1), ("0", 2)]


def test_only_the_last_event_of_a_piece_reaches_to_its_end():
    piece = _piece("0", 0, 1, 2)._replace(read_to=Place(1, 7))
    assert [each.read_to.position for each in by_time([[piece]])] == [0, 7]


def test_all_partitions_are_closed_when_one_fails_or_the_rest_is_not_wanted():
    closed = []

    def endless(name):
        try:
            while True:
                yield _piece(name, 0, 5)
        finally:
            closed.append(name)

    def broken():
        yield _piece("2", 0, 0)
        raise ValueError("broken")

    # The error, which is still there, refers to what was read.
    with pytest.raises(ValueError, match="broken") as error:
        list(by_time([endless("0"), endless("1"), broken()]))
    assert error is not None
    assert sorted(closed) == ["0", "1"]
    merged = by_time([endless("3"), [_piece("4", 0, 0)]])
    next(merged)
    merged.close()
    assert closed[2:] == ["3"]


@pytest.mark.parametrize("threads", [1, 3])
def test_sources_are_read_at_the_same_time_and_each_keeps_its_order(threads):
    def source(partition):
        for first in range(50):
            yield _piece(partition, first, 0)

    found = _seen(as_they_come([source(str(number)) for number in range(3)], threads=threads))
    for number in range(3):
        assert [first for partition, first in found if partition == str(number)] == list(range(50))


def test_an_error_of_a_source_is_raised_and_the_others_end():
    ended = threading.Event()

    def endless():
        try:
            while True:
                yield _piece("0", 0, 0)
        finally:
            ended.set()

    def broken():
        yield _piece("1", 0, 0)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        for _ in as_they_come([endless(), broken()], threads=2):
            pass
    assert ended.is_set()


def test_sources_end_when_no_more_is_wanted():
    ended = []

    def endless(number):
        try:
            while True:
                yield _piece(str(number), 0, 0)
        finally:
            ended.append(number)

    pieces = as_they_come([endless(0), endless(1)], threads=2)
    next(pieces)
    pieces.close()
    assert sorted(ended) == [0, 1]
