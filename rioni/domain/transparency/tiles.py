"""Tiles of the Merkle tree and their paths (C2SP tlog-tiles).

A tile has up to 256 hashes of one level, of which each covers 256 times as many leaves as one of the level below; a
bundle of entries has the leaves of a tile of level 0, each behind its length as two bytes, big-endian.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rioni.domain.errors import Malformed


TILE_LEVELS = 8
"""Levels of the tree that one tile spans."""
TILE_WIDTH = 1 << TILE_LEVELS

LEAF_BYTES_MAX = 65_535

_LEVEL = re.compile(r"0|[1-5]?[0-9]|6[0-3]")
_NUMBER = re.compile(r"(?:x[0-9]{3}/)*[0-9]{3}")
_WIDTH = re.compile(r"[1-9][0-9]{0,2}")
_NUMBER_CHARACTERS_MAX = 34
"""Seven groups: more than a log of 2^63 entries needs."""


class Tile(NamedTuple):
    """Which tile, or bundle of entries."""

    level: int
    number: int
    width: int
    """How many hashes of it: 256 if it is complete."""


def tile_path(tile: Tile, kind: str | None = None) -> str:
    """Return the path of a tile below the prefix of the log.

    Args:
        tile: the tile.
        kind: `entries` for a bundle; None for hashes.
    """
    groups = [f"{tile.number % 1_000:03}"]
    rest = tile.number // 1_000
    while rest:
        groups.append(f"x{rest % 1_000:03}")
        rest //= 1_000
    partial = "" if tile.width == TILE_WIDTH else f".p/{tile.width}"
    return f"tile/{kind or tile.level}/{'/'.join(reversed(groups))}{partial}"


def parse_tile(level: str, rest: str) -> Tile:
    """Read the path of a tile behind `tile/`.

    Args:
        level: the first part: a level, or `entries`, which stands for level 0.
        rest: the others: number and width.

    Raises:
        Malformed: this is not a path in the only accepted form.
    """
    path, dot, width = rest.partition(".p/")
    number = path.replace("x", "").replace("/", "")
    if (
        (level != "entries" and not _LEVEL.fullmatch(level))
        or len(path) > _NUMBER_CHARACTERS_MAX
        or not _NUMBER.fullmatch(path)
        or (dot and not (_WIDTH.fullmatch(width) and int(width) < TILE_WIDTH))
    ):
        raise Malformed(f"{level}/{rest} is not the path of a tile; see C2SP tlog-tiles.")
    tile = Tile(0 if level == "entries" else int(level), int(number), int(width) if dot else TILE_WIDTH)
    if tile_path(tile) != f"tile/{tile.level}/{rest}":
        raise Malformed(f"{level}/{rest} is not the shortest path of that tile.")
    return tile


def width_of(level: int, number: int, size: int) -> int:
    """Return how many hashes a tile has in a tree with `size` leaves; 0 if there is no such tile."""
    return max(0, min(TILE_WIDTH, (size >> TILE_LEVELS * level) - number * TILE_WIDTH))


def bundle(leaves: Sequence[bytes]) -> bytes:
    """Return a bundle of entries."""
    return b"".join(part for leaf in leaves for part in (len(leaf).to_bytes(2), leaf))


def split_bundle(data: bytes) -> list[bytes]:
    """Return the leaves of a bundle of entries.

    Raises:
        Malformed: the data end within a leaf.
    """
    leaves, at = [], 0
    while at < len(data):
        begin = at + 2
        at = begin + int.from_bytes(data[at:begin])
        if begin > len(data) or at > len(data):
            raise Malformed("The bundle of entries ends within a leaf.")
        leaves.append(data[begin:at])
    return leaves
