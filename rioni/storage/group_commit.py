"""Groups concurrent writes, so that callers share one durable write (group commit)."""

import _thread  # threads: greenlets only: they submit, and one writes
import contextlib
import threading  # threads: greenlets only: they submit, and one writes
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from rioni.domain.errors import OutcomeUnknown, Overloaded, Unavailable
from rioni.domain.ports.host import ThreadPool, without_deadline


GROUP_BYTES_MAX = 8 * 2**20
"""Maximum size of one write, which bounds its duration; a single larger job is written alone."""

PENDING_BYTES_MAX = 64 * 2**20
"""Maximum size of pending jobs; load beyond the disk's speed must be rejected, not queued."""

CLOSE_WAIT_S = 40.0
"""How long closing waits for a disk that hangs; all submitted jobs are settled by then."""

_UNKNOWN = "The outcome is unknown: the write timed out. Check the storage, then retry."


class WriteJob:
    """A write and its outcome."""

    def __init__(self, size: int) -> None:
        self.size = size
        """The size in bytes."""
        self.error: Exception | None = None
        self.under_way = False
        """Set by the writer: the job is in progress, and part of the next group again."""
        self.settled = threading.Event()


J = TypeVar("J", bound=WriteJob)


class GroupCommit(Generic[J]):
    """Writes jobs in groups, one group at a time.

    While jobs are pending, a separate thread (under gevent a greenlet) does the writing, so that a caller killed
    while it waits does not affect the others; it ends when no jobs are pending.
    """

    def __init__(self, write: Callable[[list[J]], Callable[[], None]], pool: ThreadPool) -> None:
        """Create the queue; the thread is started on demand.

        Args:
            write: writes a group durably; it may add to the group, see `add_pending`. Its exception is the error of all
                jobs that have none yet; its result is called in the writer's thread, outside the pool, before the
                callers continue, and must not block.
            pool: the pool in which `write` may block without limit: callers have deadlines, and groups stay in order.
        """
        self._write, self._pool = write, without_deadline(pool)
        self._lock = threading.Lock()
        self._pending: deque[J] = deque()
        # Apart from each other, as `write` runs in a native thread, which must not wait for the lock.
        self._submitted_bytes = self._taken_bytes = 0
        self._under_way: list[J] = []
        self._writing = False
        self._written = threading.Event()
        """Set while no thread writes."""
        self._written.set()
        self._closed = False

    def submit(self, job: J, timeout_s: float) -> None:
        """Wait until the job is written.

        Raises:
            Overloaded: the queue is full, or the timeout expired before the write; nothing is written.
            Unavailable: the store is closed; nothing is written.
            OutcomeUnknown: the timeout expired during the write.
            Exception: the job's own error.
        """
        with self._lock:
            if self._closed:
                raise Unavailable("The broker is stopping. Try again on another node, or later.")
            waiting = self._submitted_bytes - self._taken_bytes + sum([each.size for each in self._under_way])
            if waiting and waiting + job.size > PENDING_BYTES_MAX:
                raise Overloaded("The write queue is full. Retry with back-off.")
            self._pending.append(job)
            self._submitted_bytes += job.size
            if not self._writing:
                # PERF: `threading.Thread` takes 60 µs more.
                _thread.start_new_thread(self._work, ())
                self._writing = True
                self._written.clear()
        if not job.settled.wait(timeout_s):
            self._withdraw(job)
        if job.error:
            raise job.error

    def add_pending(self, group: list[J]) -> None:
        """Add the jobs that are pending now to the group that is being written; only `write` may call this.

        PERF: for a writer that has waited for a lock of other processes; without it, the first job that comes is
        written alone, while all others wait for its write.
        """
        size = sum([job.size for job in group if not job.under_way])
        with contextlib.suppress(IndexError):  # withdrawn between the two lines
            while self._pending and size + self._pending[0].size <= GROUP_BYTES_MAX:
                job = self._pending.popleft()
                self._taken_bytes += job.size
                size += job.size
                group.append(job)

    def close(self) -> None:
        """Reject further jobs and wait until the pending ones are written, for `CLOSE_WAIT_S` at most."""
        with self._lock:
            self._closed = True
        self._written.wait(CLOSE_WAIT_S)

    def _withdraw(self, job: J) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._pending.remove(job)  # fails if the writer has taken it
            self._submitted_bytes -= job.size
            raise Overloaded("Timed out waiting to write; nothing was written. Retry later.")
        if not job.settled.is_set():
            raise OutcomeUnknown(_UNKNOWN)

    def _work(self) -> None:
        while group := self._take():
            try:
                self._pool(self._write, group)()
            except Exception as ex:  # noqa: BLE001 - it becomes the answer of every caller of the group
                for job in group:
                    # Jobs in progress may still be written.
                    job.error = job.error or (OutcomeUnknown(_UNKNOWN) if job.under_way else ex)
                    job.under_way = False
            self._under_way = [job for job in group if job.under_way]
            for job in group:
                if not job.under_way:
                    job.settled.set()

    def _take(self) -> list[J]:
        with self._lock:
            group = self._under_way.copy()
            if self._pending:
                # However large it is: a job that is larger than a group is written alone.
                group.append(job := self._pending.popleft())
                self._taken_bytes += job.size
                self.add_pending(group)
            if not group:
                self._writing = False
                self._written.set()
            return group


def no_follow_up() -> None:
    """Do nothing after a write: for writers without further work."""
