"""Reads the machine's clocks, and ignores jumps of the wall clock."""

import time
from collections.abc import Callable
from typing import NamedTuple

import structlog


CLOCK_JUMP_MAX_MS = 3_600_000
"""Maximum clock correction; a larger jump counts as a clock error."""

_log = structlog.get_logger("rioni.storage")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _elapsed_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _asleep_ms() -> int:
    awake = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return (time.clock_gettime_ns(awake) - time.monotonic_ns()) // 1_000_000


class Readings(NamedTuple):
    """The clocks that are compared, in milliseconds."""

    wall_ms: Callable[[], int] = _wall_ms
    elapsed_ms: Callable[[], int] = _elapsed_ms
    """Elapsed time from an arbitrary start; may not advance while the machine sleeps."""
    asleep_ms: Callable[[], int] = _asleep_ms
    """How long the machine has slept since boot, if the system reports it."""


class SteadyTime:
    """The wall clock while it agrees with the elapsed time; after a jump, the time it would have shown without it.

    A jump is ignored until the wall clock returns, or the process is restarted: one wrong timestamp, ten years ahead,
    would keep everything after it from ever expiring, and make all existing events expire at once.
    """

    def __init__(self, readings: Readings = Readings()) -> None:  # noqa: B008 - immutable
        self.jump_ms = 0
        """How far the wall clock is ahead of the elapsed time, negative if it lags; 0 while the clock is trusted."""
        self._wall_ms, self._elapsed_ms, self._asleep_ms = readings
        self._offset_ms, self._slept_ms = readings.wall_ms() - readings.elapsed_ms(), readings.asleep_ms()

    def now_ms(self) -> int:
        """Milliseconds since the epoch. PERF: 0.4 µs more than the wall clock alone."""
        elapsed_ms, wall_ms = self._elapsed_ms(), self._wall_ms()
        jump_ms = wall_ms - elapsed_ms - self._offset_ms
        if not -CLOCK_JUMP_MAX_MS <= jump_ms <= CLOCK_JUMP_MAX_MS:
            # PERF: read only here, because it may be a system call.
            slept_ms = self._asleep_ms()
            slept_ms, self._slept_ms = slept_ms - self._slept_ms, slept_ms
            self._offset_ms += slept_ms
            jump_ms -= slept_ms
        if -CLOCK_JUMP_MAX_MS <= jump_ms <= CLOCK_JUMP_MAX_MS:
            # Small corrections are followed, no matter how many.
            self._offset_ms += jump_ms
            if self.jump_ms:
                self.jump_ms = 0
                _log.info("the machine's clock is consistent again")
            return wall_ms
        if not self.jump_ms:
            _log.warning(self.warning_of(jump_ms))
        self.jump_ms = jump_ms
        return elapsed_ms + self._offset_ms

    @property
    def warning(self) -> str:
        """The warning for the operator; empty while the wall clock is trusted."""
        return self.warning_of(self.jump_ms) if self.jump_ms else ""

    @staticmethod
    def warning_of(jump_ms: int) -> str:
        """Return the warning for the operator about a jump."""
        where = "ahead" if jump_ms > 0 else "back"
        return (
            f"The machine's clock has jumped {where} by {abs(jump_ms) // 1000} s; the broker continues from the "
            "previous time. Correct the clock, or restart the broker if the new time is the right one."
        )


STEADY = SteadyTime()
"""Shared by this process and all forked from it: a restarted worker must not trust a jumped clock either."""


class SystemClock:
    """The production clock: the machine's wall clock without its jumps, and its monotonic clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch; may go back by small corrections of the machine's clock."""
        return STEADY.now_ms()

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic()


class ExpiryClock(SystemClock):
    """The later of wall clock and steady clock after a jump, so that nothing is valid beyond its expiry."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return max(STEADY.now_ms(), _wall_ms())


def not_before(previous_ms: int, now_ms: int) -> int:
    """The time stamp of events that are appended now.

    Args:
        previous_ms: the time stamp of the events that were appended before. Time stamps do not go back when the clock
            is set back by a little, because they are searched in. One that is further in the future is wrong and not
            carried on: else no later event would ever expire.
        now_ms: by the clock.
    """
    if previous_ms <= now_ms + CLOCK_JUMP_MAX_MS:
        return max(previous_ms, now_ms)
    _log.warning("events were stored with a time in the future; the clock was wrong then, or is now", by_ms=previous_ms)
    return now_ms
