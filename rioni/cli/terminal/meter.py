"""Shows on a terminal how far a command is, in one line of stderr that is written anew."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


EVERY_S = 0.2


class Meter:
    """One line about the present state; nothing where stderr is not a terminal.

    Args:
        clock: returns seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._shown_s = 0.0
        self._is_shown = False
        self._is_terminal = sys.stderr.isatty()

    def show(self, text: Callable[[], str]) -> None:
        """Write the line, unless that was done a moment ago."""
        if not self._is_terminal or self._clock() - self._shown_s < EVERY_S:
            return
        self._shown_s = self._clock()
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\x1b[K{text()[: width - 1]}")
        sys.stderr.flush()
        self._is_shown = True

    def clear(self) -> None:
        """Make room for other output."""
        if self._is_shown:
            clear_line()
            self._is_shown = False

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._begun_s

    def rate(self, count: int) -> str:
        """So many in the time since the beginning, by second."""
        return f"{count / max(self.seconds, 0.001):,.0f}/s"


def clear_line() -> None:
    """Remove what a meter may have written, where stderr is a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


@contextmanager
def meter() -> Iterator[Meter]:
    """A meter whose line is removed at the end."""
    made = Meter()
    try:
        yield made
    finally:
        made.clear()
