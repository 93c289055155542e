"""Log reader with a stored checkpoint, and the states of the audit trail."""

import contextlib
from collections.abc import Sequence

from eventsourcing.persistence import IntegrityError, Tracking
from sqlalchemy import select

from rioni.domain.ports.event_log import EventLog, LogEntry, RecordedChange
from rioni.projections.tables import AUDIT_LOG
from rioni.sql.tracking import Begin, SqlTrackingRecorder


class SqlCheckpointedLogReader:
    """Implements the port `CheckpointedLogReader`.

    Args:
        log: is followed.
        reading: begins a transaction that reads the same database.
        writing: begins one that writes.
    """

    def __init__(self, log: EventLog, reading: Begin, writing: Begin) -> None:
        self._log, self._reading = log, reading
        self._tracking = SqlTrackingRecorder(reading, writing)

    def head(self) -> int:
        """The last position of the log."""
        return self._log.head().position

    def changes(self, after: int, limit: int) -> Sequence[RecordedChange]:
        """Return about `limit` entries after a position, in order and without gaps; no transaction is cut."""
        entries = self._commands(after, limit)
        if not entries:
            return []
        columns = AUDIT_LOG.c
        query = (
            select(columns.before, columns.after)
            .where(columns.position > after, columns.position <= entries[-1].position)
            .order_by(columns.position)
        )
        with self._reading() as connection:
            states = connection.execute(query).all()
        # The read models grow in the transactions of the log, and positions have no gaps.
        return [RecordedChange(entry, *tuple(state)) for entry, state in zip(entries, states, strict=True)]

    def _commands(self, after: int, limit: int) -> Sequence[LogEntry]:
        while True:
            entries = self._log.entries(after, limit)
            if len(entries) < limit:
                return entries
            # The last transaction may go on after these entries; its command's other entries may lie before those of
            # others.
            last, end = entries[-1].origin.command_id, len(entries)
            while end and entries[end - 1].origin.command_id == last:
                end -= 1
            if end:
                return entries[:end]
            limit *= 2

    def state(self, kind: str, key: str, position: int) -> str | None:
        """The JSON of an aggregate after the entries up to a position; None if it did not exist then."""
        columns = AUDIT_LOG.c
        query = (
            select(columns.after)
            .where(columns.resource_type == kind, columns.resource == key, columns.position <= position)
            .order_by(columns.position.desc())
            .limit(1)
        )
        with self._reading() as connection:
            return connection.scalar(query)

    def checkpoint(self, follower: str) -> int:
        """The checkpoint of a follower: the last position it has processed; 0 at first."""
        return self._tracking.max_tracking_id(follower) or 0

    def save_checkpoint(self, follower: str, position: int) -> None:
        """Save a follower's checkpoint durably; it never moves backwards."""
        with contextlib.suppress(IntegrityError):
            self._tracking.insert_tracking(Tracking(follower, position))
