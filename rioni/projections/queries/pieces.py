"""Reads a list in pieces that are bounded in bytes, by keys that are known already."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar


PIECE_BYTES = 262_144
"""The size at which a piece is full; its last body may have 600 kB."""
ROWS_AT_FIRST = 4
"""The number of rows read first; their size decides how many are read next."""
ROWS_MAX = 64
"""The maximum number of rows read at once; rows that don't fit into the piece are read again for the next one."""

K = TypeVar("K")
B = TypeVar("B", str, bytes)


def piece(read: Callable[[Sequence[K]], Mapping[K, B]], keys: Sequence[K]) -> tuple[list[B], int]:
    """The bodies of the first keys, until there are `PIECE_BYTES`, and how many keys that were.

    Args:
        read: reads the bodies of some keys; those that have none any more are left out.
        keys: in the order of the list.
    """
    found: list[B] = []
    size, done, rows_at_once = 0, 0, ROWS_AT_FIRST
    while done < len(keys) and size < PIECE_BYTES:
        part = keys[done : done + rows_at_once]
        bodies = read(part)
        for key in part:
            if size >= PIECE_BYTES:
                break
            done += 1
            if (body := bodies.get(key)) is not None:
                found.append(body)
                size += len(body)
        rows_at_once = max(1, min(ROWS_MAX, (PIECE_BYTES - size) * done // max(1, size)))
    return found, done
