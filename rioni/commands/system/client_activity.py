"""Tracks client activity in memory and persists it periodically."""

import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections.abc import Collection, Mapping

import structlog

from rioni.config.logs import FailureLog
from rioni.domain.errors import RioniError
from rioni.domain.ports.host import Clock, ThreadPool
from rioni.domain.system.client_activity import DAY_MS, RETENTION_MS, Activity, ActivityKey, LastActivity, merge


WRITE_EVERY_S = 1.0
FORGET_EVERY_S = 3_600.0
ACTIVE_HOLDS_S = 10.0
"""How long it is remembered which resources are active: reading it takes up to 20 ms."""
PENDING_MAX = 10_000
"""Maximum number of distinct records that wait to be written; further ones are dropped."""

_log = structlog.get_logger("rioni.client_activity")

_FAILED = "could not persist client activity"


class ActivityTracker:
    """Activity of the clients of this process, and, about a second late, of all others."""

    def __init__(self, activity: Activity, clock: Clock, pool: ThreadPool) -> None:
        """Start with nothing pending.

        Args:
            activity: the persistent store.
            clock: for timestamps and intervals.
            pool: runs calls that block on the disk.
        """
        self._activity, self._clock, self._pool = activity, clock, pool
        self._lock = threading.Lock()
        self._failures = FailureLog(_log)
        self._pending: dict[ActivityKey, LastActivity] = {}
        self._write_at_s = self._forget_at_s = clock.monotonic()
        self._active: tuple[int, float, Collection[str]] = (0, 0.0, ())
        """The cached result for recent days: their number, its expiry in monotonic time, and the active resources."""

    def record(self, action: str, resource: str, client: str, amount: int = 0) -> None:
        """Record an action of a client. Never blocks. PERF: 2 µs."""
        now_ms, key = self._clock.now_ms(), ActivityKey(action, resource, client)
        self._add(key, LastActivity(now_ms, now_ms, amount))

    def of(self, action: str, resource: str) -> Mapping[str, LastActivity]:
        """Activity on a resource, by the keys of clients. Blocks on the disk.

        Raises:
            Unavailable: it can't be read, or pending records can't be written.
        """
        self.write()
        return self._pool(self._activity.of, action, resource)

    def of_any(self, actions: Collection[str], resource: str) -> Mapping[ActivityKey, LastActivity]:
        """Activity on a resource by any of these actions. Blocks on the disk.

        Raises:
            Unavailable: as `of`.
        """
        self.write()
        return self._pool(self._activity.of_any, actions, resource)

    def active_within(self, days: int) -> Collection[str]:
        """The resources on which there was activity in the last days, except the last ten seconds. Blocks on the disk.

        Raises:
            Unavailable: as `of`.
        """
        of_days, until_s, active = self._active
        if of_days != days or self._clock.monotonic() >= until_s:
            self.write()
            active = self._pool(self._activity.active_since, self._clock.now_ms() - days * DAY_MS)
            self._active = days, self._clock.monotonic() + ACTIVE_HOLDS_S, active
        return active

    def write(self) -> None:
        """Write pending records. Blocks on the disk.

        Raises:
            Unavailable: they can't be written; they remain pending.
        """
        with self._lock:
            pending, self._pending = self._pending, {}
        if not pending:
            return
        try:
            self._pool(self._activity.add, pending)
        except BaseException:
            for key, seen in pending.items():
                self._add(key, seen)
            raise

    def tick(self) -> None:
        """Write and expire records if due; call it periodically. Blocks on the disk; logs and retries failures."""
        now_s = self._clock.monotonic()
        if now_s < min(self._write_at_s, self._forget_at_s):
            return
        try:
            if now_s >= self._write_at_s:
                self._write_at_s = now_s + WRITE_EVERY_S
                self.write()
            if now_s >= self._forget_at_s:
                self._forget_at_s = now_s + FORGET_EVERY_S
                self._pool(self._activity.delete_before, self._clock.now_ms() - RETENTION_MS)
        except RioniError as ex:
            self._failures.failed(_FAILED, ex)
        else:
            self._failures.succeeded(_FAILED)

    def close(self) -> None:
        """Write pending records, as the last thing. Blocks on the disk; logs failures."""
        try:
            self.write()
        except RioniError as ex:
            self._failures.failed(_FAILED, ex)

    def _add(self, key: ActivityKey, seen: LastActivity) -> None:
        with self._lock:
            if (known := self._pending.get(key)) is not None:
                self._pending[key] = merge(known, seen)
            elif len(self._pending) < PENDING_MAX:
                self._pending[key] = seen
