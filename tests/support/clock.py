"""A clock that only moves when a test advances it."""


class ManualClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return (self._now_ms - self._start_ms) / 1000

    def advance(self, ms: int) -> None:
        """Move the time; a negative number sets the wall clock back."""
        self._now_ms += ms
