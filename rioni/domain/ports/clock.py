"""The port to the time."""

from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
