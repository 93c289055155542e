"""Limits slots across the cluster: each worker's count for each kind of slot is stored in one node."""

import contextlib
import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from urllib.parse import quote

import msgspec

from rioni.domain.errors import Overloaded, Unavailable
from rioni.domain.ports.host import Clock, direct
from rioni.storage.group_commit import GroupCommit, WriteJob, no_follow_up
from rioni.storage.threads import run_on_hub
from rioni.storage.zookeeper.driver import REFUSALS, Operation, create, delete, put
from rioni.storage.zookeeper.nodes import SLOTS, WORKERS
from rioni.storage.zookeeper.session import ZooKeeperSession


TAKE_TIMEOUT_S = 10.0
"""A request not accepted by ZooKeeper by then is answered with 503."""

CATCH_UP_SLOTS = 500
"""Maximum number of kinds written together in the background: ZooKeeper accepts at most 1 MB per request."""

MISSING = -1
"""The version of a node that does not exist."""

_decode: Callable[[bytes], dict[str, int]] = msgspec.json.Decoder(dict[str, int]).decode


class _Take(WriteJob):
    def __init__(self, slots: Mapping[str, int]) -> None:
        super().__init__(size=0)
        self.slots = slots
        self.full: Sequence[str] = ()
        self.given_up = False
        """Whether the caller has timed out."""


class _Found:
    """A kind of slot: the counts of other workers, and the version of its node."""

    def __init__(self, slot: str, taken: dict[str, int], version: int, mine: int) -> None:
        self.path, self._taken, self._version = _path(slot), taken, version
        self._others = sum(taken.values())
        self.mine = mine

    @property
    def count(self) -> int:
        return self._others + self.mine

    def operation(self, worker: str) -> Operation:
        """Return the operation that writes this worker's count."""
        taken = self._taken | ({worker: self.mine} if self.mine else {})
        if not taken and self._version != MISSING:
            return delete(self.path)
        data = msgspec.json.encode(taken)
        return create(self.path, data) if self._version == MISSING else put(self.path, data, self._version)

    @property
    def needed(self) -> bool:
        """Whether anything has to be written."""
        return self._version != MISSING or self.mine > 0


class ZooKeeperConnectionQuota:
    """The port `ConnectionQuota` on ZooKeeper. A worker's counts are valid while its session is alive."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        """Start without slots."""
        self.hub_thread = session.hub_thread
        self._session, self._clock = session, clock
        self._lock = threading.Lock()
        self._holders: dict[str, Iterable[str]] = {}
        self._mine: Counter[str] = Counter()
        self._worker = session.worker
        self._unwritten: set[str] = set()
        """The kinds of slots whose stored count may be wrong."""
        self._group: GroupCommit[_Take] = GroupCommit(self._write, direct)
        session.listen(self._resume)

    @run_on_hub
    def acquire(self, holder: str, slots: Mapping[str, int]) -> Sequence[str]:
        """Take all slots or none; see the port."""
        take = _Take(slots)
        self._submit(take)
        if not take.full:
            self._holders[holder] = slots.keys()
        return take.full

    @run_on_hub
    def release(self, holder: str) -> None:
        """Release the slots of a holder; see the port. Without ZooKeeper, others see it after reconnecting."""
        slots = self._holders.pop(holder, ())
        with self._lock:
            self._mine.subtract(slots)
        if slots:
            with contextlib.suppress(Unavailable):
                # Taking none of them writes the present counts.
                self._submit(_Take(dict.fromkeys(slots, 0)))

    @run_on_hub
    def close(self) -> None:
        """Stop writing: the slots of this process are released when its session ends; see the port."""
        self._group.close()

    def _submit(self, take: _Take) -> None:
        try:
            self._group.submit(take, 2 * TAKE_TIMEOUT_S)
        except Unavailable:
            # The slots may have been written all the same, or will be.
            with self._lock:
                take.given_up = True
                self._unwritten.update(take.slots)
            raise

    def _resume(self) -> None:
        if self._session.registered and (self._unwritten or self._worker != self._session.worker):
            self._session.handler.spawn(self._catch_up)

    def _catch_up(self) -> None:
        """Write the counts that others do not know yet, while possible."""
        with contextlib.suppress(Unavailable):
            self._submit(_Take({}))
            while self._unwritten:
                self._submit(_Take({}))

    def _write(self, takes: Sequence[_Take]) -> Callable[[], None]:
        deadline_s = self._clock.monotonic() + TAKE_TIMEOUT_S
        names = {slot for take in takes for slot in take.slots}
        while self._clock.monotonic() < deadline_s:
            worker = self._session.worker
            with self._lock:
                if worker != self._worker:
                    # The counts of the old session are gone.
                    self._worker = worker
                    self._unwritten |= self._mine.keys()
                names.update(islice(self._unwritten, CATCH_UP_SLOTS))
                mine = Counter({slot: self._mine[slot] for slot in names})
            found = self._find(mine)
            granted = [take for take in takes if _grant(take, found)]
            operations = [each.operation(worker) for each in found.values() if each.needed]
            if self._session.transaction(*operations) is not None:
                self._have(granted, names)
                return no_follow_up
        raise Overloaded("The ZooKeeper transaction failed after repeated conflicts. Try again later.")

    def _have(self, granted: Iterable[_Take], written: Collection[str]) -> None:
        with self._lock:
            self._unwritten.difference_update(written)
            for take in granted:
                noted = self._unwritten if take.given_up else self._mine
                noted.update(take.slots.keys())
            for slot in [slot for slot, count in self._mine.items() if not count]:
                del self._mine[slot]

    def _find(self, mine: Mapping[str, int]) -> dict[str, _Found]:
        # Workers are read last: those whose counts were found existed before.
        *stored, living = self._session.request_with_retry(
            *[lambda client, path=path: client.get_async(path) for path in map(_path, mine)],
            lambda client: client.get_children_async(WORKERS),
        )
        others = {*living} - {self._session.worker}
        found = {}
        for (slot, count), node in zip(mine.items(), stored, strict=True):
            taken, version = ({}, MISSING) if isinstance(node, REFUSALS) else (_decode(node[0]), node[1].version)
            found[slot] = _Found(slot, {name: n for name, n in taken.items() if name in others}, version, count)
        return found


def _grant(take: _Take, found: Mapping[str, _Found]) -> bool:
    """Take one slot of each kind if all are free; return whether they were."""
    take.full = [slot for slot, most in take.slots.items() if found[slot].count >= most]
    if take.full:
        return False
    for slot in take.slots:
        found[slot].mine += 1
    return True


def _path(slot: str) -> str:
    return f"{SLOTS}/{quote(slot, safe='')}"
