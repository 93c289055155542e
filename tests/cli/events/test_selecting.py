from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.events.selecting import limited, selected, wanted_by
from rioni.client.ranges import Place, RangePart
from rioni.domain.errors import Invalid


def _piece(*events, read_to=None):
    last = Place(1, len(events) - 1 if read_to is None else read_to)
    return RangePart("orders", "0", Place(1, 0), list(events), last)


def _places(pieces):
    return [(piece.place(index).position, event) for piece in pieces for index, event in enumerate(piece.events)]


@given(st.lists(st.booleans()), st.integers(0, 3))
def test_wanted_events_keep_their_places_and_progress_is_not_lost(wanted, hidden):
    piece = _piece(*[b"%d" % each for each in wanted], read_to=len(wanted) + hidden)
    found = list(selected([piece], lambda event: event == b"1"))
    assert _places(found) == [(place, b"1") for place, each in enumerate(wanted) if each]
    assert found[-1].read_to == piece.read_to
    assert [each.read_to for each in found] == sorted(each.read_to for each in found)
    for each in found[:-1]:
        assert each.read_to == each.place(len(each.events) - 1)


def test_a_filter_is_an_expression_of_subscriptions():
    wanted = wanted_by("event.total > 100 && metadata.flow_id != ''")
    assert wanted(b'{"total":101,"metadata":{"flow_id":"a"}}')
    assert not wanted(b'{"total":100,"metadata":{"flow_id":"a"}}')
    assert not wanted(b"{}")
    assert wanted_by(None)(b"{}")


def test_a_filter_may_be_used_by_several_threads():
    wanted = wanted_by("event.number % 2 == 0")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: wanted(b'{"number":%d}' % number), range(4_000)))
    assert found == [number % 2 == 0 for number in range(4_000)]


def test_an_expression_that_is_none_is_refused():
    with pytest.raises(Invalid, match="The filter can't be used"):
        wanted_by("event.total >")


@pytest.mark.parametrize(("limit", "expected"), [(None, 5), (1, 1), (2, 2), (3, 3), (9, 5)])
def test_a_limit_counts_events(limit, expected):
    pieces = [_piece(b"a", b"b"), _piece(), _piece(b"c", b"d", b"e")]
    found = list(limited(pieces, limit))
    assert sum(len(piece.events) for piece in found) == expected


def test_behind_the_limit_nothing_is_read():
    def pieces():
        yield _piece(b"a", b"b")
        raise AssertionError

    assert [piece.events for piece in limited(pieces(), 2)] == [[b"a", b"b"]]
    (only,) = limited(pieces(), 1)
    assert only.read_to.position == 0
