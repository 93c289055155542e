"""Places that greenlets and native threads wait for alike.

Under gevent the locks of `threading` are made for the greenlets of one thread. A native thread that finds one taken may
wait for ever, and so may greenlets that wait for a native thread: what is offloaded must not meet others there. Here
the ends of a deque are atomic, and who waits looks again now and then.
"""

import math
import time
from collections import deque


PAUSE_MIN_S = 0.0005
"""Who waits looks again after this time, and then ever more rarely."""
PAUSE_MAX_S = 0.01


class Places:
    """A number of places to take and to give back; one place is a lock: `with` takes it, however long that takes."""

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

    def __enter__(self) -> None:
        self.take(math.inf)

    def __exit__(self, *_: object) -> None:
        self.give_back()
