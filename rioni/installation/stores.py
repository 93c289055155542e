"""Checks that the stores of an installation are consistent; see `rioni.domain.system.anchors`."""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, Engine

from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.hash_chain import LogHead
from rioni.domain.subscriptions.cursor_arithmetic import beyond_end
from rioni.domain.system.anchors import INSTALLATION, Anchor, DataMismatch
from rioni.domain.system.storages import EMBEDDED, StorageEntry
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER, Timeline
from rioni.projections.projector import all_states
from rioni.sql.log_tables import LOG
from rioni.storage.embedded.anchors import COORDINATION, Found, committed_offsets, inspect, table_names
from rioni.storage.embedded.coordination.database import CoordinationDatabase
from rioni.storage.embedded.data_directory import events_path, registry_missing
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.structure import unusable_tables
from rioni.storage.sql.engines import reading
from rioni.storage.sql.store_marks import ends_of, entry_hash, read_head, read_marks, topic_mark


# --- Checks that the stores of an installation are consistent; see `rioni.domain.system.anchors` ---
#
# Runs before the worker processes start, and in `rioni verify`. Files are only read. Files replaced while the broker
# runs are not detected: SQLite itself could not handle that.

TOPICS_SHOWN_MAX = 5


class Registered(NamedTuple):
    """The storages, readable timelines and subscriptions in the registry."""

    storages: dict[str, StorageEntry]
    timelines: list[Timeline]
    subscriptions: list[str]
    uncompacted: set[str]
    """The event types whose events compaction never removes."""

    def in_storages(self, storage_type: str) -> dict[str, list[Timeline]]:
        """Return the timelines in each storage of a type, by the storage's id."""
        found: dict[str, list[Timeline]] = {
            storage_id: [] for storage_id, each in sorted(self.storages.items()) if each.storage_type == storage_type
        }
        for timeline in self.timelines:
            if timeline.storage_id in found:
                found[timeline.storage_id].append(timeline)
        return found


def registered(connection: Connection) -> Registered:
    """Read the registry from the read models; blocks on the database."""
    found = Registered({}, [], [], set())
    for kind, key, state in all_states(connection):
        if kind == "storage":
            found.storages[key] = state
        elif kind == "timeline":
            found.timelines.extend(state.readable)
        elif kind == "subscription":
            found.subscriptions.append(key)
        elif kind == "event-type" and state.cleanup_policy == "delete":
            found.uncompacted.add(key)
    return found


class Expected(NamedTuple):
    """The state of a data directory's stores according to the registry."""

    marks: dict[str, str]
    head: LogHead
    timelines: dict[str, list[Timeline]]
    """The existing timelines, by embedded storage."""


def read_expected(connection: Connection) -> Expected:
    """Read the expected state from the registry; blocks on the database."""
    timelines = registered(connection).in_storages(EMBEDDED)
    return Expected(read_marks(connection), read_head(connection), timelines)


def mismatches(engine: Engine, data: Path) -> Iterator[str]:
    """Yield a sentence for each sign of a replaced or missing store; blocks on the disk.

    Args:
        engine: of the registry's database, with the current schema.
        data: the data directory.

    Raises:
        Unavailable: the database can't be read.
    """
    with reading(engine) as connection:
        expected = read_expected(connection)
        for storage_id, timelines in expected.timelines.items():
            path = events_path(data, storage_id)
            if not path.exists():
                if timelines:
                    yield f"{path.name} is missing. It has to hold {counted(len(timelines), 'topic')}."
                continue
            if found := (yield from _own(connection, path, expected)):
                yield from _of_topics(path.name, found, timelines, expected.marks)
        yield from _of_coordination(connection, data / "coordination.db", expected)
        yield from _of_others(connection, data, expected)


Ends = Callable[[Timeline], Sequence[int]]
"""Returns the next position of each partition of a timeline."""


def cursors_beyond_end(engine: Engine, data: Path) -> Iterator[str]:
    """Yield a sentence for each committed cursor after the last event of its partition; blocks on the disk.

    This does not prevent the start: clients may commit any offset.
    """
    with reading(engine) as connection:
        expected = read_expected(connection)
    ends: dict[str, list[int]] = {}
    for storage_id in expected.timelines:
        if (path := events_path(data, storage_id)).exists():
            ends |= inspect(path).ends
    if (path := data / "coordination.db").exists():
        timelines = chain.from_iterable(expected.timelines.values())
        yield from beyond_ends(committed_offsets(path), timelines, lambda timeline: ends.get(timeline.topic, ()))


def beyond_ends(
    cursors: Iterable[tuple[str, EventTypePartition, str]], timelines: Iterable[Timeline], ends: Ends, advice: str = ""
) -> Iterator[str]:
    """Yield a sentence for each committed cursor that is none, or is after the last event of its partition.

    Args:
        cursors: subscription, partition and offset.
        timelines: those whose topics exist; only active ones count.
        ends: called once for each of them that has a cursor.
        advice: the end of each sentence.
    """
    active = {each.event_type: each for each in timelines if each.latest_position is None}
    known: dict[str, Sequence[int]] = {}
    for subscription_id, key, offset in cursors:
        try:
            number, place = int(key.partition), parse_offset(offset, partition=key.partition, oldest_order=FIRST_ORDER)
        except (RioniError, TypeError, ValueError):
            what = f"{key.event_type}, partition {key.partition}: {offset!r} is no offset"
            yield f"subscription {subscription_id}: {what}{advice}"
            continue
        if (timeline := active.get(key.event_type)) is None:
            continue
        if timeline.topic not in known:
            known[timeline.topic] = ends(timeline)
        if place is None or number >= len(known[timeline.topic]):
            continue
        newest = TimelinePosition(timeline.order, known[timeline.topic][number] - 1)
        if place > newest:
            yield f"subscription {subscription_id}: {beyond_end(key, offset, newest)}{advice}"


def check_registry(data: Path) -> None:
    """Check that the registry of a data directory with other stores can be read, and has a log.

    Raises:
        DataMismatch: it is missing, empty, or another file.
        Unavailable: it is there, but can't be read.
    """
    if missing := registry_missing(data):
        raise DataMismatch([missing])
    others = sorted(path.name for path in (*data.glob("events*.db"), *data.glob("coordination.db")))
    if not others:
        return
    try:
        tables = table_names(data / "registry.db")
    except (sqlite3.Error, OSError, UnicodeDecodeError) as ex:
        raise Unavailable(
            f"registry.db, which holds the internal log, is damaged: {ex}. Nothing was changed. Restore a backup with "
            "`rioni restore`. Without one, move registry.db away: `rioni accept-loss` then reports what is lost."
        ) from ex
    if LOG.name not in tables:
        raise DataMismatch([f"registry.db is empty or another file: it has no log, which says what {others[0]} holds."])


def _of_others(connection: Connection, data: Path, expected: Expected) -> Iterator[str]:
    """Check the files of storages that the registry does not have: those of deleted storages remain."""
    known = {events_path(data, storage_id) for storage_id in expected.timelines}
    for path in sorted({*data.glob("events*.db")} - known):
        found = yield from _own(connection, path, expected)
        if found and found.anchor is None and found.ends and not expected.head.position:
            yield f"{path.name} holds {counted(len(found.ends), 'topic')}, and the log of the registry is empty."


def _of_coordination(connection: Connection, path: Path, expected: Expected) -> Iterator[str]:
    mark = expected.marks.get(COORDINATION)
    if not path.exists():
        if mark is not None:
            yield f"{path.name} is missing. It has to hold the committed cursors of all subscriptions."
        return
    found = yield from _own(connection, path, expected)
    if found and mark is not None and found.sequence < int(mark):
        yield (
            f"{path.name} is older than the registry: its state has the number {found.sequence}, and {mark} was "
            "recorded. Committed cursors would go back."
        )


def _own(connection: Connection, path: Path, expected: Expected) -> Generator[str, None, Found | None]:
    """Yield the defects of a file as a whole, and return its anchor and marks if it has none.

    For a file of another installation the missing topics are not listed.
    """
    try:
        found = inspect(path)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as ex:
        yield f"{path.name} can't be read: {ex}."
        return None
    known = CoordinationDatabase if path.name == "coordination.db" else EventsDatabase
    if found.version > known.schema_version:
        yield (
            f"{path.name} was written by a newer version of Rioni (schema {found.version}, known here: "
            f"{known.schema_version}). Use that version."
        )
        return None
    if unusable := unusable_tables(path, known.schema, known.schema_version):
        yield f"{path.name} {unusable}."
        return None
    strangers = list(_of_anchor(connection, path.name, found.anchor, expected))
    yield from strangers
    return None if strangers else found


def _of_anchor(connection: Connection, name: str, anchor: Anchor | None, expected: Expected) -> Iterator[str]:
    """Compare a file's anchor with the registry, in both directions, as the registry may be the replaced one."""
    if anchor is None:
        return
    installation = expected.marks.get(INSTALLATION)
    if installation != anchor.installation:
        yield (
            f"{name} belongs to another installation, {anchor.installation}; the registry is that of "
            f"{installation or 'a new one'}."
        )
        return
    position = anchor.log.position
    if position > expected.head.position:
        yield (
            f"The registry is older than {name}: its log ends at position {expected.head.position}, and {name} was "
            f"written when the log had {position}."
        )
    elif position and entry_hash(connection, position) != anchor.log.hash:
        yield (
            f"The registry has another history than {name}: the entry at position {position} of its log is not the "
            f"one that was there when {name} was written."
        )


def _of_topics(name: str, found: Found, timelines: list[Timeline], marks: dict[str, str]) -> Iterator[str]:
    missing = sorted({timeline.event_type for timeline in timelines if timeline.topic not in found.ends})
    if missing:
        yield f"{name} lacks the topics of {counted(len(missing), 'event type')}: {shown(missing)}."
    present = [(each, found.ends[each.topic]) for each in timelines if each.topic in found.ends]
    if behind := [text for each, ends in present for text in short_partitions(each, least_ends(each, marks), ends)]:
        yield (
            f"{name} is older than the registry: {counted(len(behind), 'partition')} end before the last recorded "
            f"position: {shown(behind)}."
        )


def short_partitions(timeline: Timeline, least: list[int], ends: list[int]) -> Iterator[str]:
    """Yield a text for each partition whose end in `ends` is before its minimum end position."""
    for number, known in enumerate(least):
        next_ = ends[number] if number < len(ends) else 0
        if next_ < known:
            yield f"{timeline.event_type}, partition {number}, at {next_ - 1} instead of {known - 1}"


def least_ends(timeline: Timeline, marks: Mapping[str, str]) -> list[int]:
    """Return the minimum next position of each partition of a timeline."""
    noted = ends_of(marks[topic_mark(timeline.topic)]) if topic_mark(timeline.topic) in marks else []
    closed = [] if timeline.latest_position is None else [position + 1 for position in timeline.latest_position]
    return [
        max(each[number] if number < len(each) else 0 for each in (noted, closed))
        for number in range(max(len(noted), len(closed)))
    ]


def counted(number: int, noun: str) -> str:
    """Format a number with its noun."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def shown(texts: list[str]) -> str:
    """Join the first texts, and the number of further ones."""
    more = f" and {len(texts) - TOPICS_SHOWN_MAX} more" if len(texts) > TOPICS_SHOWN_MAX else ""
    return "; ".join(texts[:TOPICS_SHOWN_MAX]) + more
