import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Malformed
from rioni.domain.transparency.merkle_tree import Tile, bundle, parse_tile, tile_path, width_of
from tests.support.rfc9162 import split_bundle


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0, 256), "tile/0/000"),
        (Tile(0, 1234067, 256), "tile/0/x001/x234/067"),
        (Tile(1, 999, 112), "tile/1/999.p/112"),
        (Tile(63, 1000, 1), "tile/63/x001/000.p/1"),
    ],
)
def test_paths_are_those_of_the_specification(tile, path):
    assert tile_path(tile) == path
    assert parse_tile(*path.removeprefix("tile/").split("/", 1)) == tile


@given(level=st.integers(0, 63), number=st.integers(0, 2**60), width=st.integers(1, 256))
def test_every_path_is_read_back(level, number, width):
    tile = Tile(level, number, width)
    assert parse_tile(*tile_path(tile).removeprefix("tile/").split("/", 1)) == tile


@pytest.mark.parametrize(
    "path",
    ["64/000", "00/000", "-1/000", "0/0", "0/1000", "0/x000/000", "0/x01/067", "0/001/067", "0/000.p/0", "0/000.p/256",
     "0/000.p/01", "0/000.p/", "0/000/", "0/\u0660\u0660\u0660", "entry/000",
     "0/" + "x999/" * 9 + "999", "0/x001/x234/067.p/8/9"],
)  # fmt: skip
def test_other_paths_are_refused(path):
    with pytest.raises(Malformed):
        parse_tile(*path.split("/", 1))


def test_bundles_have_the_path_of_their_tile():
    assert tile_path(Tile(0, 67, 3), "entries") == "tile/entries/067.p/3"
    assert parse_tile("entries", "067.p/3") == Tile(0, 67, 3)


@pytest.mark.parametrize(
    ("level", "number", "size", "width"),
    [(0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 256, 256), (0, 1, 256, 0), (0, 1, 300, 44), (1, 0, 300, 1), (1, 0, 70_000, 256),
     (1, 1, 70_000, 17), (2, 0, 70_000, 1), (3, 0, 70_000, 0), (63, 0, 2**60, 0)],
)  # fmt: skip
def test_a_tile_is_as_wide_as_the_tree_has_complete_subtrees(level, number, size, width):
    assert width_of(level, number, size) == width


@given(leaves=st.lists(st.binary(max_size=600), max_size=5))
def test_bundles_have_each_leaf_after_its_length(leaves):
    assert split_bundle(bundle(leaves)) == leaves
