"""Locks files with a deadline.

`flock` has no deadline, and polling doubles the latency of the slowest appends when processes alternate many times a
second. So a thread that finds the lock taken lets a helper thread wait for it in the kernel, and waits for the helper
with a deadline. After the deadline it continues while the helper still waits; the helper is reused once it has acquired
the lock and released it, and the number of helpers is bounded.
"""

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from rioni.domain.errors import Unavailable
from rioni.files.locks import try_lock, unlock
from rioni.storage.threads import Empty, NativeQueue, start_native_thread


WAIT_S = 10.0
"""Default deadline. A holder keeps the lock for one transaction, some milliseconds."""

AGAIN_S = 0.2
"""Deadline after another wait has timed out and the lock has not been free since: later callers fail fast."""

WAITING_MAX = 8
"""Maximum number of helper threads of this process per lock: more than the pools of one storage have."""


class FileLock:
    """Exclusive lock among the threads of this process and of all others that use the same path."""

    def __init__(self, path: Path) -> None:
        """Create the lock without opening the file.

        Args:
            path: the path of the file, created if it doesn't exist.
        """
        self._path = path
        self._idle: deque[_Waiter] = deque()
        self._waiters = 0
        self._given_up: set[_Order] = set()
        """Orders whose caller has timed out while a helper still waits: the lock has not been free since."""

    @contextlib.contextmanager
    def held(self, wait_s: float = WAIT_S) -> Iterator[None]:
        """Hold the lock; blocks the thread natively for `wait_s` at most.

        Raises:
            Unavailable: another process or thread keeps the lock for longer.
            OSError: the file can't be opened.
        """
        # A new file description each time, so that the lock excludes threads of this process too.
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            locked = try_lock(fd)
        except BaseException:
            os.close(fd)
            raise
        if not locked:
            self._wait(fd, wait_s)
        try:
            yield
        finally:
            _let_go(fd)

    def _wait(self, fd: int, wait_s: float) -> None:
        """Wait for the lock of an open file; close the file on timeout."""
        if self._given_up:
            wait_s = min(wait_s, AGAIN_S)
        try:
            waiter = self._idle.pop()
        except IndexError:
            if self._waiters >= WAITING_MAX:
                os.close(fd)
                raise self._taken(wait_s) from None
            try:
                waiter = _Waiter(self._idle, self._given_up)
            except RuntimeError as ex:
                os.close(fd)
                raise Unavailable(f"Could not start a thread to wait for a lock: {ex}. Try again later.") from ex
            self._waiters += 1
        try:
            waiter.wait(fd, wait_s)
        except TimeoutError:
            raise self._taken(wait_s) from None

    def _taken(self, wait_s: float) -> Unavailable:
        return Unavailable(
            f"Another process has kept the lock of {self._path} for more than {wait_s:g} s; nothing was written. Try "
            "again later; if it stays so, look for a process that hangs and has this file open."
        )


class _Waiter:
    """A native helper thread that waits for one lock at a time."""

    def __init__(self, idle: deque["_Waiter"], given_up: set["_Order"]) -> None:
        self._idle, self._given_up = idle, given_up
        self._orders = NativeQueue()
        start_native_thread(self._run, ())

    def wait(self, fd: int, wait_s: float) -> None:
        """Return when the lock of the open file is held.

        Raises:
            TimeoutError: not acquired in time; the file will be closed.
        """
        order = _Order(fd)
        self._orders.put(order)
        try:
            order.answers.get(timeout=wait_s)
        except Empty:
            # Before the claim: the helper removes it again as soon as it has seen the claim.
            self._given_up.add(order)
            if order.claim():
                raise TimeoutError from None
            self._given_up.discard(order)
        if order.error is not None:
            raise order.error

    def _run(self) -> None:
        while True:
            order: _Order = self._orders.get()  # waits: a native thread that has nothing else to do
            try:
                fcntl.flock(order.fd, fcntl.LOCK_EX)  # waits: a native thread that others wait for with a deadline
            except OSError as ex:
                os.close(order.fd)
                order.error = ex
            if order.claim():
                order.answers.put(True)
            else:
                if order.error is None:
                    _let_go(order.fd)
                self._given_up.discard(order)
            del order
            self._idle.append(self)


class _Order:
    """A request for a lock; the first of the two sides to claim it decides whether it was granted in time."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.answers = NativeQueue()
        self.error: OSError | None = None
        self._claims = deque((True,))

    def claim(self) -> bool:
        """Whether this is the first claim."""
        try:
            return self._claims.pop()
        except IndexError:
            return False


def _let_go(fd: int) -> None:
    # A process forked meanwhile has a copy of the descriptor: closing alone would keep the lock held there.
    unlock(fd)
    os.close(fd)
