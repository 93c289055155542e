"""Spreads connections evenly over the worker processes of a node.

All workers accept from the same socket, and the first one to wake up would take every connection that waits there. So
they share the numbers of their connections, and a worker that has more of them than another leaves new ones to that.
"""

import mmap
import time
from collections.abc import Collection
from typing import Any

from gevent.server import StreamServer


LEAD_MAX = 1
"""How many connections more than another worker one may have and still accept."""

LEAVE_S = 0.1
"""How long a new connection is left to the others. They may be busy or hang: each further one is left to them for half
of the time, until they accept again."""
LOOK_EVERY_S = 0.002

_ABSENT = -1


class ConnectionCounts:
    """The number of open connections of each worker, in memory that forked processes share."""

    def __init__(self, workers: int) -> None:
        """Allocate the memory, in the parent process.

        Args:
            workers: how many there may be at a time, with those that are being replaced.
        """
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("i")
        for number in range(workers):
            self.leave(number)

    def free_number(self, taken: Collection[int]) -> int:
        """Return a number for another worker; the last one is shared by all workers beyond the maximum."""
        last = len(self._counts) - 1
        return next((number for number in range(last) if number not in taken), last)

    def set(self, number: int, connections: int) -> None:
        """Publish the number of connections of a worker that accepts."""
        self._counts[number] = connections

    def of(self, number: int) -> int:
        """Return the number of connections of a worker."""
        return max(0, self._counts[number])

    def leave(self, number: int) -> None:
        """Publish that a worker does not accept, or has ended."""
        self._counts[number] = _ABSENT

    def least(self) -> int:
        """Return the smallest number of connections of a worker that accepts."""
        return min((count for count in self._counts if count != _ABSENT), default=0)


class BalancedServer(StreamServer):
    """Accepts connections while this worker has not many more than another."""

    def __init__(self, counts: ConnectionCounts, number: int, *args: Any, **kwargs: Any) -> None:
        """Create the server; the further arguments are those of `StreamServer`.

        Args:
            counts: of all workers.
            number: of this one.
            args: of `StreamServer`.
            kwargs: of `StreamServer`.
        """
        self._counts, self._number = counts, number
        self._connections = self._least = 0
        self._leave_s, self._left_since_s = LEAVE_S, 0.0
        super().__init__(*args, **kwargs)
        counts.set(number, 0)

    def do_read(self) -> Any:
        """Accept a connection, unless it is left to another worker."""
        if self._leaves():
            self.stop_accepting()
            # As the base class does after an error.
            self._timer = self.loop.timer(LOOK_EVERY_S)
            self._timer.start(self._start_accepting_if_started)  # type: ignore[attr-defined,call-arg]
            return None
        accepted = super().do_read()
        if accepted:
            self._note(1)
        return accepted

    def ended(self) -> None:
        """Count a connection no longer."""
        self._note(-1)

    def close(self) -> None:
        """Accept no more connections."""
        super().close()
        self._counts.leave(self._number)

    def _note(self, change: int) -> None:
        self._connections += change
        if not self.closed:
            self._counts.set(self._number, self._connections)

    def _leaves(self) -> bool:
        least = self._counts.least()
        if least != self._least:
            self._least, self._leave_s = least, LEAVE_S
        if self._connections - least <= LEAD_MAX:
            self._left_since_s = 0.0
            return False
        now_s = time.monotonic()
        self._left_since_s = self._left_since_s or now_s
        if now_s < self._left_since_s + self._leave_s:
            return True
        self._leave_s, self._left_since_s = self._leave_s / 2, 0.0
        return False
