"""Returns memory to the system after large requests, with glibc."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any


ARENAS_MAX = 2
"""Each thread of a pool would get a heap of its own, and each keeps what its largest task has taken."""
_M_ARENA_MAX = -8


def limit_arenas() -> None:
    """Let all threads of this process share few heaps; before the first thread starts."""
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)


def trim_memory() -> None:
    """Give back what is free. PERF: some milliseconds, without the interpreter's lock."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@lru_cache(2)
def _function(name: str) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = getattr(ctypes.CDLL(None), name, None)
    return found
