"""Provides a semaphore usable from greenlets and native threads.

Under gevent the locks of `threading` belong to the greenlets of one thread. A native thread that finds one taken may
wait for ever, and so may greenlets that wait for a native thread: pool threads and greenlets must not share such locks.
This semaphore relies on the atomic operations of a deque, and waiters poll with increasing pauses.
"""

import contextlib
import time
from collections import deque
from collections.abc import Iterator

from rioni.domain.errors import Overloaded, Unavailable


PAUSE_MIN_S = 0.0005
"""First pause of a waiter between two attempts; it doubles up to the maximum."""
PAUSE_MAX_S = 0.01

WAIT_S = 60.0
"""Timeout of `with`. Code that runs under such a lock has shorter deadlines of its own."""


class ThreadSafeSemaphore:
    """A counting semaphore; with one permit it is a lock, which `with` acquires."""

    def __init__(self, number: int = 1) -> None:
        self._free = deque(range(number))

    def acquire(self, wait_s: float) -> bool:
        """Acquire a permit; return False on timeout."""
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

    def release(self) -> None:
        """Release an acquired permit."""
        self._free.append(0)

    @contextlib.contextmanager
    def taken(self, wait_s: float, otherwise: str) -> Iterator[None]:
        """Hold a permit during a block.

        Args:
            wait_s: timeout.
            otherwise: the error text on timeout.

        Raises:
            Unavailable: no permit becomes free in time.
        """
        if not self.acquire(wait_s):
            raise Unavailable(f"{otherwise} Try again later.")
        try:
            yield
        finally:
            self.release()

    def __enter__(self) -> None:
        """Acquire a permit.

        Raises:
            Overloaded: no permit becomes free within `WAIT_S`.
        """
        if not self.acquire(WAIT_S):
            raise Overloaded("This process is too busy. Try again later.")

    def __exit__(self, *_: object) -> None:
        self.release()
