"""Counts refused requests in memory, and stores a bounded number of records every few seconds."""

import threading
from collections import Counter
from collections.abc import Sequence

import msgspec
import structlog

from rioni.domain.audit.denials import Denial, DenialStore
from rioni.domain.errors import RioniError
from rioni.domain.events import printable
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.thread_pool import ThreadPool
from rioni.domain.timestamps import rfc3339


WRITE_EVERY_S = 5.0
RECORDS_MAX = 100
"""Different records of a process within that time; more are counted together by status."""
RECORDS_PER_ADDRESS_MAX = 20
"""Likewise of one address, counted together by status and address: a flood leaves room for the others."""
CHARACTERS_MAX = 200

Key = tuple[int, str, str, str, str]
"""status, method, path, actor, address."""

_log = structlog.get_logger("rioni.denied_requests")


class DeniedRequests:
    """The refused requests of this process, and, some seconds late, of all others."""

    def __init__(self, store: DenialStore, clock: Clock, pool: ThreadPool) -> None:
        """Start with nothing pending.

        Args:
            store: the persistent records.
            clock: for timestamps and intervals.
            pool: runs what blocks on the database.
        """
        self._store, self._clock, self._pool = store, clock, pool
        self._lock = threading.Lock()
        self._pending: dict[Key, Denial] = {}
        self._of_address: Counter[str] = Counter()
        self._write_at_s = clock.monotonic() + WRITE_EVERY_S

    def record(
        self, status: int, method: str, path: str, *, actor: str, address: str, user_agent: str, flow_id: str
    ) -> None:
        """Record a refused request. Never blocks. PERF: 3 µs."""
        key = (status, method[:CHARACTERS_MAX], path[:CHARACTERS_MAX], actor[:CHARACTERS_MAX], address)
        now = rfc3339(self._clock.now_ms())
        with self._lock:
            key = self._with_room(key)
            if (known := self._pending.get(key)) is not None:
                self._pending[key] = msgspec.structs.replace(known, last_at=now, count=known.count + 1)
                return
            self._of_address[key[4]] += 1
            texts = (printable(text, CHARACTERS_MAX) for text in (*key[1:], user_agent, flow_id))
            method, path, actor, address, user_agent, flow_id = texts
            self._pending[key] = Denial(
                first_at=now,
                last_at=now,
                status=status,
                method=method,
                path=path,
                actor=actor,
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
        if pending:
            self._pool(self._store.add, list(pending.values()))

    def tick(self) -> None:
        """Write if due; call it periodically. Blocks on the database; logs failures."""
        if (now_s := self._clock.monotonic()) < self._write_at_s:
            return
        self._write_at_s = now_s + WRITE_EVERY_S
        try:
            self.write()
        except RioniError:
            _log.exception("records of refused requests were lost")

    def _with_room(self, key: Key) -> Key:
        """The key under which a request is counted."""
        status, _, _, _, address = key
        if key in self._pending:
            return key
        if self._of_address[address] >= RECORDS_PER_ADDRESS_MAX:
            key = (status, "", "", "", address)
        if key not in self._pending and len(self._pending) >= RECORDS_MAX:
            key = (status, "", "", "", "")
        return key
