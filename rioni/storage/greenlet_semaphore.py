"""Semaphore usable from greenlets and native threads.

Under gevent the locks of `threading` are made for the greenlets of one thread. A native thread that finds one taken may
wait for ever, and so may greenlets that wait for a native thread: what is offloaded must not meet others there. Here
the ends of a deque are atomic, and who waits looks again now and then.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from rioni.domain.errors import Overloaded, Unavailable


PAUSE_MIN_S = 0.0005
"""Who waits looks again after this time, and then ever more rarely."""
PAUSE_MAX_S = 0.01

WAIT_S = 60.0
"""How long `with` waits. What is done under such a lock has deadlines of its own, and they are shorter."""


class ThreadSafeSemaphore:
    """A number of places to take and to give back; one place is a lock, which `with` takes."""

    def __init__(self, number: int = 1) -> None:
        self._free = deque(range(number))

    def take(self, wait_s: float) -> bool:
        """Take a place; False where none has become free in time."""
        deadline, pause_s = time.monotonic() + wait_s, PAUSE_MIN_S
        while True:
            try:
                self._free.pop()
            except IndexError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)
            else:
                return True

    def give_back(self) -> None:
        """Free a place that was taken."""
        self._free.append(0)

    @contextlib.contextmanager
    def taken(self, wait_s: float, otherwise: str) -> Iterator[None]:
        """Have a place in a block.

        Args:
            wait_s: how long to wait for it.
            otherwise: what is said where none becomes free in time.

        Raises:
            Unavailable: none becomes free in time.
        """
        if not self.take(wait_s):
            raise Unavailable(f"{otherwise} Try again later.")
        try:
            yield
        finally:
            self.give_back()

    def __enter__(self) -> None:
        """Take a place.

        Raises:
            Unavailable: none becomes free within `WAIT_S`.
        """
        if not self.take(WAIT_S):
            raise Overloaded("This process is too busy. Try again later.")

    def __exit__(self, *_: object) -> None:
        self.give_back()
