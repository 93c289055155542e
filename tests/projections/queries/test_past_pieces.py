from hypothesis import given
from hypothesis import strategies as st

from rioni.projections.queries.past import PIECE_BYTES, ROWS_AT_FIRST, piece


SIZES = st.lists(st.sampled_from((0, 1, 1_000, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES, None)), max_size=400)
"""Sizes of the bodies of a list; None for a body that is gone."""


@given(SIZES)
def test_pieces_make_up_the_list_in_its_order_without_what_is_gone(sizes):
    bodies = {number: f"{number} ".ljust(size, "x") for number, size in enumerate(sizes) if size is not None}
    keys, found = [*range(len(sizes))], []
    while keys:
        some, done = piece(lambda part: {key: bodies[key] for key in part if key in bodies}, keys)
        assert done
        found += some
        keys = keys[done:]
    assert found == [*bodies.values()]


def test_a_piece_holds_little_more_than_its_bytes_however_long_the_list_is():
    asked = []

    def read(keys):
        asked.append(len(keys))
        return dict.fromkeys(keys, "x" * 1_000)

    found, done = piece(read, range(100_000))
    assert PIECE_BYTES <= sum(map(len, found)) < PIECE_BYTES + 1_000
    assert done == len(found)


def test_however_large_bodies_are_a_piece_keeps_one_beyond_its_bytes_and_few_are_read():
    asked = []

    def read(keys):
        asked.append(len(keys))
        return dict.fromkeys(keys, "x" * 600_000)

    found, done = piece(read, range(1_000))
    assert (len(found), done, asked) == (1, 1, [ROWS_AT_FIRST])


def test_a_piece_keeps_no_more_where_large_bodies_follow_small_ones():
    bodies = {key: "x" if key < 100 else "x" * 600_000 for key in range(1_000)}
    found, done = piece(lambda keys: {key: bodies[key] for key in keys}, range(1_000))
    assert done == len(found) == 101
