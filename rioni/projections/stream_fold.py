"""Folds the log stream by stream into the rows of the read models: bounded by the longest stream."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import Projection
from rioni.projections.fold import EMPTY, Change, fold


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
