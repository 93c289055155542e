"""A clock that tests move ahead."""

import mmap
import time


class MovableClock:
    """The machine's clocks, moved ahead together. How far is shared with the processes that are forked later."""

    def __init__(self) -> None:
        self._ahead_ms = memoryview(mmap.mmap(-1, 8)).cast("q")

    def advance(self, milliseconds: int) -> None:
        """Move ahead by so much."""
        assert milliseconds >= 0, "no broker can deal with time that goes back"
        self._ahead_ms[0] += milliseconds

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._ahead_ms[0]

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic() + self._ahead_ms[0] / 1_000
