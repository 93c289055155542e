"""Returns memory to the system after large requests, with glibc."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any


ARENAS_MAX = 2
"""Otherwise each pool thread would get a heap of its own, which keeps the memory of its largest task."""
_M_ARENA_MAX = -8


def limit_arenas() -> None:
    """Limit the number of malloc arenas shared by all threads; call it before the first thread starts."""
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_M_ARENA_MAX, ARENAS_MAX)


def trim_memory() -> None:
    """Return free memory to the system. PERF: some milliseconds, without holding the GIL."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


@lru_cache(2)
def _function(name: str) -> Callable[..., Any] | None:
    found: Callable[..., Any] | None = getattr(ctypes.CDLL(None), name, None)
    return found
