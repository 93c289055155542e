"""Reads every stored event and reports all damage."""

from collections.abc import Callable

from rioni.domain.errors import NotFound
from rioni.storage.embedded.events.chunk_chain import GENESIS, digests_fit
from rioni.storage.embedded.events.chunks import (
    CHAINED_COLUMNS,
    POSITION_MAX,
    ChainedRow,
    Damage,
    DamagedEvents,
    chain_hash,
    chunk_key,
    decode,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import Chain, find_chain


SLICE_CHUNKS = 64
"""Number of chunks read at once: short reads don't delay checkpoints."""

_SELECT_SLICE = f"SELECT {CHAINED_COLUMNS} FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT {SLICE_CHUNKS}"  # noqa: S608 - constants


def verify(database: EventsDatabase, progress: Callable[[int, int], None] = lambda _done, _total: None) -> list[Damage]:
    """Read everything and return all damage; blocks on the disk, without blocking other readers and appends.

    Args:
        database: of the events.
        progress: called with the number of events checked and their total.
    """
    damage: list[Damage] = []
    try:
        damage += (Damage("", -1, -1, text) for (text,) in database.fetch("PRAGMA integrity_check") if text != "ok")
        partitions = database.fetch("SELECT topic, number, next - oldest FROM partitions ORDER BY id")
        done, total = 0, sum(count for *_, count in partitions if isinstance(count, int))
        for topic, number, count in partitions:
            damage += _Partition(database, topic, number).verify()
            done += count if isinstance(count, int) else 0
            progress(done, total)
    except DamagedEvents as ex:
        damage.append(ex.damage)
    return damage


class _Partition:
    """The verification of one partition."""

    def __init__(self, database: EventsDatabase, topic: str, number: int) -> None:
        self._database, self._topic, self._number = database, topic, number
        self._position = 0
        """The next position to be checked."""
        self._last: bytes | None = GENESIS
        """The hash of the chunk before it; None if that is unknown, since it is damaged or missing."""
        self._damage: list[Damage] = []

    def verify(self) -> list[Damage]:
        """Return all damage; what is appended meanwhile is not checked, what is deleted meanwhile is no damage."""
        stop, head = None, b""
        while stop is None or self._position < stop:
            try:
                partition, chain = find_chain(self._database, self._topic, self._number)
            except NotFound:
                return []  # deleted meanwhile
            except DamagedEvents as ex:
                return [*self._damage, ex.damage]
            if stop is None:
                stop, head = partition.next, chain.head
            if self._position < partition.oldest or self._position == 0:
                self._begin(partition.oldest, chain)
            keys = chunk_key(partition.id, self._position), chunk_key(partition.id, stop)
            rows = self._database.fetch(_SELECT_SLICE, keys)
            for row in rows:
                self._check(row, chained=row[0] & POSITION_MAX >= chain.begin)
            if not rows and self._position < stop:
                self._report(self._position, f"the events before position {stop} are missing")
                return self._damage
        if self._last is not None and head != (b"" if self._last == GENESIS else self._last):
            self._report(self._position, "the last chunk is not the one that the partition's hash chain ends with")
        return self._damage

    def _begin(self, oldest: int, chain: Chain) -> None:
        self._position = oldest
        self._last = (chain.foot or GENESIS) if oldest > chain.begin else GENESIS

    def _check(self, row: ChainedRow, *, chained: bool) -> None:
        first: int = row[0] & POSITION_MAX
        if first != self._position:
            self._report(self._position, f"the events before position {first} are missing")
            self._last = None
        try:
            chunk = decode(row[:7])
            self._position = chunk.next
            previous, self._last = self._last, row[7] if chained else GENESIS
            if tuple(map(type, row[7:])) != (bytes, bytes):
                self._report(first, "the hash or the digests have the wrong type")
                self._last = None
            elif chained and previous is not None and chain_hash(row, previous) != row[7]:
                self._report(first, "the hash does not fit: this chunk, or the hash before it, was changed")
            elif not digests_fit(chunk, row[8]):
                self._report(first, "the digests of events that compaction has removed were changed")
        except ValueError as ex:
            self._report(first, str(ex))
            # Its events are unknown, so that the gap after it will be reported too.
            self._position, self._last = first + 1, None

    def _report(self, position: int, what: str) -> None:
        self._damage.append(Damage(self._topic, self._number, position, what))
