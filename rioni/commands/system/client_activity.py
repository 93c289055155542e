"""Keeps client activity and refused requests in memory, and stores them every few seconds."""

import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
import structlog

from rioni.config.logs import FailureLog
from rioni.domain.access.authorization import name_and_realm
from rioni.domain.audit_events import Denial, DenialStore
from rioni.domain.errors import RioniError
from rioni.domain.events import printable
from rioni.domain.ports.host import Clock, ThreadPool
from rioni.domain.system.client_activity import DAY_MS, RETENTION_MS, Activity, ActivityKey, LastActivity, merge
from rioni.domain.timestamps import rfc3339


# --- Tracks client activity in memory and persists it periodically ---

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
        return {key.client: seen for key, seen in self.of_any([action], resource).items()}

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


# --- Counts refused requests in memory, and stores a bounded number of records every few seconds ---

WRITE_DENIALS_EVERY_S = 5.0
RECORDS_MAX = 100
"""Different records of clients that are not known, of a process within that time; more are counted by status."""
RECORDS_PER_ADDRESS_MAX = 20
"""Different records of one unknown address within that time; more are counted by status and address, which leaves room
for other addresses."""
RECORDS_OF_KNOWN_MAX = 10_000
"""Different records of known subjects within that time; more are counted by status, subject and address."""
RECORDS_PER_SUBJECT_MAX = 1_000
"""Different records of one known subject within that time; more are counted together, which leaves room for others."""
SUBJECTS_MAX = 1_000
"""Subjects that may be counted together so; more are counted by status alone."""
BYTES_MAX = 200
"""The maximum size of each text of a record, in UTF-8, so that limits on records limit bytes."""


class Key(NamedTuple):
    """The values that requests counted as one record have in common."""

    status: int
    method: str
    path: str
    subject: str
    """Key of the subject; empty if the client is not known."""
    address: str


_denials_log = structlog.get_logger("rioni.denied_requests")

_LOST = "records of refused requests were lost"


class DeniedRequests:
    """The refused requests of this process, and, some seconds late, of all others."""

    def __init__(self, store: DenialStore, clock: Clock, pool: ThreadPool) -> None:
        """Start with nothing pending.

        Args:
            store: the persistent records.
            clock: for timestamps and intervals.
            pool: runs calls that block on the database.
        """
        self._store, self._clock, self._pool = store, clock, pool
        self._lock = threading.Lock()
        self._failures = FailureLog(_denials_log)
        self._pending: dict[Key, Denial] = {}
        self._of_address: Counter[str] = Counter()
        self._of_subject: Counter[str] = Counter()
        self._write_at_s = clock.monotonic() + WRITE_DENIALS_EVERY_S

    def record(
        self, status: int, method: str, path: str, *, subject: str, address: str, user_agent: str, flow_id: str
    ) -> None:
        """Record a refused request; `subject` is the key of the caller, or empty. Never blocks. PERF: 3 µs."""
        key = Key(status, _cut(method), _cut(path), subject, _cut(address))
        now = rfc3339(self._clock.now_ms())
        with self._lock:
            key = self._with_room(key)
            if (known := self._pending.get(key)) is not None:
                self._pending[key] = msgspec.structs.replace(known, last_at=now, count=known.count + 1)
                return
            if key.subject:
                self._of_subject[key.subject] += 1
            else:
                self._of_address[key.address] += 1
            texts = (key.method, key.path, *name_and_realm(key.subject), key.address, user_agent, flow_id)
            method, path, actor, realm, address, user_agent, flow_id = (
                _cut(printable(text, BYTES_MAX)) for text in texts
            )
            self._pending[key] = Denial(
                first_at=now,
                last_at=now,
                status=status,
                method=method,
                path=path,
                actor=actor,
                realm=realm,
                address=address,
                user_agent=user_agent,
                flow_id=flow_id,
                count=1,
            )

    def newest(self, before: int | None, limit: int) -> Sequence[tuple[int, Denial]]:
        """Records with their numbers, newest first, from before a number on. Blocks on the database.

        Raises:
            Unavailable: they can't be read, or pending records can't be written, which are lost then.
        """
        self.write()
        return self._pool(self._store.newest, before, limit)

    def write(self) -> None:
        """Write pending records. Blocks on the database; raises as `newest`."""
        with self._lock:
            pending, self._pending = self._pending, {}
            self._of_address.clear()
            self._of_subject.clear()
        if pending:
            self._pool(self._store.add, list(pending.values()))

    def tick(self) -> None:
        """Write if due; call it periodically. Blocks on the database; logs failures."""
        if (now_s := self._clock.monotonic()) < self._write_at_s:
            return
        self._write_at_s = now_s + WRITE_DENIALS_EVERY_S
        try:
            self.write()
        except RioniError as ex:
            self._failures.failed(_LOST, ex)
        else:
            self._failures.succeeded(_LOST)

    def _with_room(self, key: Key) -> Key:
        """The key under which a request is counted."""
        if key in self._pending:
            return key
        if key.subject:
            return self._with_room_for_known(key)
        if self._of_address[key.address] >= RECORDS_PER_ADDRESS_MAX:
            key = Key(key.status, "", "", "", key.address)
        if key not in self._pending and self._of_address.total() >= RECORDS_MAX:
            key = Key(key.status, "", "", "", "")
        return key

    def _with_room_for_known(self, key: Key) -> Key:
        """Return the key for counting a known subject's request; it names the subject as long as there is room."""
        total, of_it = self._of_subject.total(), self._of_subject[key.subject]
        if of_it < RECORDS_PER_SUBJECT_MAX and total < RECORDS_OF_KNOWN_MAX:
            return key
        for address in (key.address, ""):
            merged = Key(key.status, "", "", key.subject, address)
            full = of_it >= 2 * RECORDS_PER_SUBJECT_MAX or total >= RECORDS_OF_KNOWN_MAX + SUBJECTS_MAX
            if merged in self._pending or not full:
                return merged
        return Key(key.status, "", "", "", "")


def _cut(text: str) -> str:
    """The beginning of a text, of at most `BYTES_MAX` bytes."""
    # PERF: most are short, and ASCII.
    if len(text) <= BYTES_MAX and text.isascii():
        return text
    return text[:BYTES_MAX].encode(errors="replace")[:BYTES_MAX].decode(errors="ignore")
