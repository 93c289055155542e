"""Reads every stored event and reports all damage."""

from collections.abc import Callable

from rioni.domain.errors import NotFound
from rioni.storage.embedded.events.chunks import (
    CHUNK_COLUMNS,
    POSITION_MAX,
    Damage,
    DamagedEvents,
    Row,
    chunk_key,
    decode,
)
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.partitions import find


SLICE_CHUNKS = 64
"""Number of chunks read at once: short reads don't delay checkpoints."""

_SELECT_SLICE = f"SELECT {CHUNK_COLUMNS} FROM chunks WHERE key >= ? AND key < ? ORDER BY key LIMIT {SLICE_CHUNKS}"  # noqa: S608 - constants


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
            damage += _verify_partition(database, topic, number)
            done += count if isinstance(count, int) else 0
            progress(done, total)
    except DamagedEvents as ex:
        damage.append(ex.damage)
    return damage


def _verify_partition(database: EventsDatabase, topic: str, number: int) -> list[Damage]:
    damage: list[Damage] = []
    position, stop = 0, None
    while stop is None or position < stop:
        try:
            partition = find(database, topic, number)
        except NotFound:
            return []  # deleted meanwhile
        except DamagedEvents as ex:
            return [*damage, ex.damage]
        stop = partition.next if stop is None else stop
        position = max(position, partition.oldest)  # retention continues meanwhile
        rows = database.fetch(_SELECT_SLICE, (chunk_key(partition.id, position), chunk_key(partition.id, stop)))
        for row in rows:
            position = _verify_row(row, position, damage, (topic, number))
        if not rows and position < stop:
            damage.append(Damage(topic, number, position, f"the events before position {stop} are missing"))
            break
    return damage


def _verify_row(row: Row, expected: int, damage: list[Damage], partition: tuple[str, int]) -> int:
    """Check a row and return the position after it."""
    first: int = row[0] & POSITION_MAX
    if first != expected:
        damage.append(Damage(*partition, expected, f"the events before position {first} are missing"))
    try:
        return decode(row).next
    except ValueError as ex:
        damage.append(Damage(*partition, first, str(ex)))
        # Its events are unknown, so that the gap after it will be reported too.
        return first + 1
