"""Has glibc return memory to the system after large requests, and never copy large blocks that grow."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any


ARENAS_MAX = 2
"""Otherwise each pool thread would get a separate heap, which keeps the memory of its largest task."""
MAPPED_BYTES_MIN = 4_000_000
"""Blocks from this size on are mappings, which grow without being copied.

PERF: glibc raises its own bound to 32 MB, and a body that grew beyond that was copied, 18 ms in which nothing else ran.
"""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def limit_arenas() -> None:
    """Limit the number of malloc arenas shared by all threads, and the size of blocks in them.

    Call it before the first thread starts.
    """
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        # Twice as much, as glibc's own rule has it: it has none any more once the other bound is set.
        mallopt(_M_TRIM_THRESHOLD, 2 * MAPPED_BYTES_MIN)


def trim_memory() -> None:
    """Return free memory to the system. PERF: some milliseconds, without holding the GIL."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@lru_cache(2)
def _function(name: str) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = getattr(ctypes.CDLL(None), name, None)
    return found
