"""The time of the machine."""

import time


class SystemClock:
    """The clock of production: the machine's wall clock, and its monotonic one."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; goes back when the machine's clock is set back."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic()
