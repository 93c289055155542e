"""The live projection: folds log entries into the read-model tables, in the transaction that appends them."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from eventsourcing.persistence import IntegrityError, Tracking
from sqlalchemy import Connection, Delete, Insert, Select, Table, bindparam, delete, insert, select

from rioni.domain.errors import Unavailable
from rioni.domain.events import stream_id
from rioni.domain.ports.event_log import EventLog, LogEntry, RecordedChange
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timeline
from rioni.projections.fold import EMPTY, FOLD_VERSION, Change, Folded, decode_state, fold
from rioni.projections.tables import (
    AUDIT_LOG,
    READ_MODELS,
    STATES,
    STORAGES,
    SUBSCRIPTION_EVENT_TYPES,
    SUBSCRIPTIONS,
    TIMELINES,
    TRACKING_NAME,
)
from rioni.sql.log_tables import TRACKING
from rioni.sql.tracking import Begin, SqlTrackingRecorder


class OtherFold(Unavailable):
    """The read models were written by another version of the fold.

    Args:
        found: the version; 0 if none was noted.
    """

    def __init__(self, found: int) -> None:
        self.found = found
        super().__init__(
            f"The read models were written by version {found} of the fold; this release has version {FOLD_VERSION}. "
            "If another node runs a newer release, upgrade this one; else stop the broker, run `rioni rebuild`, and "
            "start it again."
        )


class Projector:
    """Implements the port `ReadModels`.

    Args:
        tables: the tables to write to, by the names of the read models; a rebuild passes its own tables, perhaps of
            some read models only.
        tracking_name: the name under which the position is kept.
    """

    def __init__(self, tables: Mapping[str, Table] = READ_MODELS.tables, *, tracking_name: str = TRACKING_NAME) -> None:
        self._tables, self._tracking_name = tables, tracking_name

    def state(self, connection: Connection, kind: str, key: str) -> tuple[Any, int]:
        """The state of an aggregate, None if it does not exist, and the version of its stream."""
        folded = self._folded(connection, kind, str(stream_id(kind, key)))
        return folded.state, folded.version

    def subscriptions_of(self, connection: Connection, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type, by id."""
        links = select(SUBSCRIPTION_EVENT_TYPES.c.subscription_id).where(
            SUBSCRIPTION_EVENT_TYPES.c.event_type == event_type
        )
        query = select(SUBSCRIPTIONS.c.body).where(SUBSCRIPTIONS.c.id.in_(links)).order_by(SUBSCRIPTIONS.c.id)
        return [decode_state("subscription", body) for body in connection.scalars(query)]

    def storages(self, connection: Connection) -> Sequence[StorageEntry]:
        """All storages by id."""
        query = select(STORAGES.c.body).order_by(STORAGES.c.id)
        return [decode_state("storage", body) for body in connection.scalars(query)]

    def timelines_in(self, connection: Connection, storage_id: str) -> Sequence[Timeline]:
        """All timelines in a storage, of all event types."""
        query = select(TIMELINES.c.body).where(TIMELINES.c.storage_id == storage_id)
        return [msgspec.json.decode(body, type=Timeline) for body in connection.scalars(query)]

    def apply(self, connection: Connection, entries: Iterable[LogEntry]) -> None:
        """Fold entries into the tables and move the tracking position, all in the caller's transaction.

        Raises:
            ValueError: an entry does not follow the ones that were applied.
            OtherFold: another version of the fold has written the tables.
        """
        position = None
        for entry in entries:
            before = self._folded(connection, entry.event.kind, str(entry.stream))
            _, changes = fold(before, entry)
            for change in changes:
                self._write(connection, change)
            position = entry.position
        if position is not None:
            self._track(connection, position)

    def position(self, connection: Connection) -> int:
        """The log position that the read models show."""
        return SqlTrackingRecorder.within(connection).max_tracking_id(self._tracking_name) or 0

    def fold_version(self, connection: Connection) -> int | None:
        """The version of the fold that wrote the read models; None if nothing was written yet."""
        return connection.scalar(select(TRACKING.c.fold).where(TRACKING.c.name == self._tracking_name))

    def clear(self, connection: Connection) -> None:
        """Empty the read models, in the caller's transaction: the log is to be folded anew."""
        for each in self._tables.values():
            connection.execute(delete(each))
        connection.execute(delete(TRACKING).where(TRACKING.c.name == self._tracking_name))

    def _folded(self, connection: Connection, kind: str, stream: str) -> Folded:
        row = connection.execute(_select_state(self._tables[STATES.name]), {"of": stream}).first()
        return EMPTY if row is None else Folded(row.version, decode_state(kind, row.state), row.state)

    def _track(self, connection: Connection, position: int) -> None:
        try:
            tracked = Tracking(self._tracking_name, position)
            SqlTrackingRecorder.within(connection, fold=FOLD_VERSION).insert_tracking(tracked)
        except IntegrityError as ex:
            if (found := self.fold_version(connection)) is None or found == FOLD_VERSION:
                raise
            raise OtherFold(found) from ex

    def _write(self, connection: Connection, change: Change) -> None:
        target = self._tables.get(change.table)
        if target is None:
            return
        key = {f"key_{number}": part for number, part in enumerate(change.key)}
        connection.execute(_delete_under(target, len(change.key)), key)
        if change.row is not None:
            connection.execute(_insert(target), change.row)


# PERF: SQLAlchemy takes 0.2 ms to put a statement together, and 0.06 ms to execute one that it knows.
@lru_cache(64)
def _select_state(states: Table) -> Select[Any]:
    return select(states.c.version, states.c.state).where(states.c.stream == bindparam("of"))


@lru_cache(64)
def _delete_under(target: Table, parts: int) -> Delete:
    """Delete all rows whose primary key begins with `key_0`, `key_1` and so on."""
    columns = list(target.primary_key.columns)[:parts]
    return delete(target).where(*(column == bindparam(f"key_{number}") for number, column in enumerate(columns)))


@lru_cache(64)
def _insert(target: Table) -> Insert:
    return insert(target)


# --- Queries over the states of all streams ---


def all_states(connection: Connection) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, key and state of everything that exists."""
    query = select(STATES.c.kind, STATES.c.key, STATES.c.state).where(STATES.c.state.is_not(None))
    for row in connection.execution_options(yield_per=1_000).execute(query):
        yield row.kind, row.key, decode_state(row.kind, row.state)


# --- A reader of the log with a stored checkpoint, and the states of the audit trail ---


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
