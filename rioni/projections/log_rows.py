"""Rows of the internal log as the client of the database returns them: entries, hash chain, fold by stream."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import RioniError
from rioni.domain.events import Origin
from rioni.domain.hash_chain import follows
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import Projection
from rioni.projections.fold import EMPTY, Change, fold


# Rows of the internal log as the database's own client returns them, for rebuilds: entries, and their hash chain.
#
# Spark's executors import this module: it needs neither SQLAlchemy nor anything that serves requests.

LOG_COLUMNS = (
    "position",
    "stream",
    "version",
    "topic",
    "recorded_at",
    "actor",
    "client",
    "flow_id",
    "command_id",
    "data",
)
"""The columns of the log without the hash, which is checked on reading and not needed afterwards."""

LogRow = Sequence[Any]
"""A row of the log, columns as in `LOG_COLUMNS`."""


class CorruptLog(RioniError):
    """The log is not the one that was written; the detail names the position at which it begins to differ."""


def log_entry(row: LogRow) -> LogEntry:
    """The entry that a row of the log holds.

    Raises:
        CorruptLog: its topic is unknown, or its data does not fit.
    """
    position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data = row
    try:
        # A damaged integer is no buffer, and `bytes` would make that many zeros of it.
        event = TOPICS[topic].decode(bytes(memoryview(data)))
    except KeyError as ex:
        raise CorruptLog(f"The entry at position {position} has the unknown topic {topic}.") from ex
    except msgspec.MsgspecError as ex:
        raise CorruptLog(f"The entry at position {position} can't be read as {topic}: {ex}") from ex
    origin = Origin(actor=actor, client=client, flow_id=flow_id, command_id=command_id, recorded_at=recorded_at)
    return LogEntry(position=position, stream=_uuid(stream), version=version, event=event, origin=origin)


# PERF: the entries of a stream come one after the other.
_uuid = lru_cache(1)(UUID)


def check_entry(row: LogRow, stored: bytes, previous: bytes | None) -> None:
    """Check that a row follows the hash of the row before it, which is None if that is missing; raises CorruptLog."""
    if previous is None:
        raise CorruptLog(f"The log is damaged: the entry at position {row[0] - 1} is missing.")
    if not follows(previous, tuple(row), stored):
        raise CorruptLog(f"The log is damaged: the entry at position {row[0]} is not the one that was written.")


def check_chain(rows: Sequence[Any], after: int, upto: int, previous: bytes) -> bytes:
    """Check that rows, columns as in `LOG_COLUMNS` and the hash, are the entries `after + 1` to `upto`.

    Args:
        rows: in the order of their positions.
        after: the position before the first row.
        upto: the position of the last row.
        previous: the hash at position `after`.

    Returns:
        The hash at position `upto`.

    Raises:
        CorruptLog: names the first position that is wrong.
    """
    expected = after
    for row in rows:
        expected += 1
        if row[0] != expected:
            raise CorruptLog(f"The log is damaged: the entry at position {expected} is missing.")
        check_entry(row[:-1], row[-1], previous)
        previous = row[-1]
    if expected != upto:
        raise CorruptLog(f"The log is damaged: the entry at position {expected + 1} is missing.")
    return previous


# --- Folds the log stream by stream into the rows of the read models: bounded by the longest stream ---

AUDIT_LOG = "audit_log"
"""The table whose rows are never changed: one for each entry."""

Row = Mapping[str, Any]


class StreamFold:
    """The fold of one stream, from its first version on.

    Args:
        custom: projections of users that belong to it.
    """

    def __init__(self, custom: Sequence[Projection] = ()) -> None:
        self._folded, self._custom = EMPTY, custom
        self._rows: dict[str, dict[tuple[str | int, ...], Row]] = {}
        self._custom_rows: dict[str, Row | None] = {}

    def add(self, entry: LogEntry) -> list[Row]:
        """Fold the next entry of the stream; return its rows of the audit log.

        Raises:
            ValueError: the entry's version does not follow.
            BrokenProjection: the function of a user failed.
        """
        for each in self._custom:
            if each.follows(entry):
                self._custom_rows[each.table] = each.next_row(self._custom_rows.get(each.table), entry)
        self._folded, changes = fold(self._folded, entry)
        audited = []
        for change in changes:
            if change.table == AUDIT_LOG and change.row is not None:
                audited.append(change.row)
            else:
                self._apply(change)
        return audited

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the rows of the stream after the last entry, those of the audit log excepted, with their tables."""
        for table, rows in self._rows.items():
            for row in rows.values():
                yield table, row
        for table, last in self._custom_rows.items():
            if last is not None:
                yield table, last

    def _apply(self, change: Change) -> None:
        rows = self._rows.setdefault(change.table, {})
        if change.row is not None:
            rows[change.key] = change.row
            return
        length = len(change.key)
        for key in [key for key in rows if key[:length] == change.key]:
            del rows[key]
