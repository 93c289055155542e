"""Records events for the event-sourcing library, on SQLAlchemy Core, and converts them to log entries and back."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from eventsourcing.persistence import (
    IntegrityError,
    Notification,
    OperationalError,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
)
from sqlalchemy import Connection, Engine, Row, Select, exc, insert, select, update

from rioni.domain.aggregates import FORMATS, Formats, newest, version_in
from rioni.domain.errors import Unavailable
from rioni.domain.events import DomainEvent, Origin, UnknownMembers, current_version
from rioni.domain.hash_chain import Fields, LogHead, link
from rioni.domain.ports.event_log import LogEntry
from rioni.sql.log_tables import HEAD, LOG, TRACKING
from rioni.storage.sql.engines import reading, writing


# --- Records events for the event-sourcing library, on SQLAlchemy Core: appends, reads, and tracks consumers ---

NOBODY = Origin(actor="", client="", flow_id="", command_id="", recorded_at="")
POLL_S = 0.02
SUBSCRIPTION_ENTRIES = 500

_COLUMNS = tuple(LOG.columns.keys())
_LOCK_HEAD = select(HEAD.c.position, HEAD.c.hash, HEAD.c.format).with_for_update()
_MOVE_HEAD = update(HEAD)
_INSERT_ENTRIES = insert(LOG)


@dataclass(frozen=True)
class StoredEntry(Notification):
    """A notification with the origin of its entry."""

    origin: Origin


class SqlRecorder(ProcessRecorder):
    """Records the events of all streams in one log with one hash chain.

    The appending transaction locks the row `head`, so writers wait for each other: positions have no gaps and become
    visible in order, on both databases.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    # --- Appending ---

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        tracking: Tracking | None = None,
        origin: Origin = NOBODY,
        **_: Any,
    ) -> Sequence[int]:
        """Append in a separate transaction, and save a consumer's checkpoint in the same one.

        Raises:
            IntegrityError: a version of a stream exists already, or the checkpoint was already further.
            OperationalError: the database can't be used now.
        """
        with _library_errors(), writing(self.engine) as connection:
            before = lock_head(connection)
            after = append(connection, before, stored_events, origin)
            if tracking is not None:
                _track(connection, tracking)
        return list(range(before.position + 1, after.position + 1))

    def insert_tracking(self, tracking: Tracking) -> None:
        """Save a consumer's checkpoint; raises IntegrityError if it was already further."""
        with _library_errors(), writing(self.engine) as connection:
            _track(connection, tracking)

    # --- Reading ---

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return the events of one stream."""
        version = LOG.c.version
        query = select(LOG).where(LOG.c.stream == str(originator_id)).limit(limit)
        query = query.order_by(version.desc() if desc else version)
        if gt is not None:
            query = query.where(version > gt)
        if lte is not None:
            query = query.where(version <= lte)
        return [_stored_event(row) for row in self._rows(query)]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return the entries of the log from a position on, in order."""
        query = select(LOG).order_by(LOG.c.position).limit(limit)
        if start is not None:
            query = query.where(LOG.c.position >= start if inclusive_of_start else LOG.c.position > start)
        if stop is not None:
            query = query.where(LOG.c.position <= stop)
        if topics:
            query = query.where(LOG.c.topic.in_(topics))
        return [stored_entry(row) for row in self._rows(query)]

    def max_notification_id(self) -> int | None:
        """Return the last position, None for an empty log."""
        with _library_errors(), reading(self.engine) as connection:
            return connection.scalar(select(HEAD.c.position)) or None

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return a consumer's checkpoint."""
        with _library_errors(), reading(self.engine) as connection:
            return connection.scalar(select(TRACKING.c.position).where(TRACKING.c.name == application_name))

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> "Subscription[SqlRecorder]":
        """Return an endless iterator over the log, which blocks at its end."""
        return _PollingSubscription(self, gt, topics)

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with _library_errors(), reading(self.engine) as connection:
            return connection.execute(query).all()


class _PollingSubscription(Subscription[SqlRecorder]):
    def __init__(self, recorder: SqlRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._pulled: list[Notification] = []

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            if self._pulled:
                notification = self._pulled.pop(0)
                self._last_notification_id = notification.id
                return notification
            self._pulled = list(
                self._recorder.select_notifications(
                    self._last_notification_id, SUBSCRIPTION_ENTRIES, topics=self._topics, inclusive_of_start=False
                )
            )
            if not self._pulled:
                time.sleep(POLL_S)
        raise StopIteration


def lock_head(connection: Connection) -> LogHead:
    """Lock the head of the log until the transaction ends, and return it."""
    return lock_log(connection)[0]


def lock_log(connection: Connection) -> tuple[LogHead, int]:
    """Lock the head of the log until the transaction ends; return it and the number of the log format."""
    row = connection.execute(_LOCK_HEAD).one()
    return LogHead(row.position, bytes(row.hash)), row.format


def append(connection: Connection, head: LogHead, events: Sequence[StoredEvent], origin: Origin) -> LogHead:
    """Append in the caller's transaction, which has locked the head; return the new head."""
    position, last = head
    rows = []
    for position, event in enumerate(events, head.position + 1):
        fields: Fields = (
            position,
            str(event.originator_id),
            event.originator_version,
            event.topic,
            origin.recorded_at,
            origin.actor,
            origin.client,
            origin.flow_id,
            origin.command_id,
            event.state,
        )
        last = link(last, fields)
        rows.append(dict(zip(_COLUMNS, (*fields, last), strict=True)))
    if rows:
        connection.execute(_INSERT_ENTRIES, rows)
        connection.execute(_MOVE_HEAD, {"position": position, "hash": last})
    return LogHead(position, last)


def _track(connection: Connection, tracking: Tracking) -> None:
    name, position = tracking.application_name, tracking.notification_id
    known = connection.scalar(select(TRACKING.c.position).where(TRACKING.c.name == name).with_for_update())
    if known is None:
        connection.execute(insert(TRACKING).values(name=name, position=position))
    elif known < position:
        connection.execute(update(TRACKING).where(TRACKING.c.name == name).values(position=position))
    else:
        raise IntegrityError(f"{name} has come to {known} already, not only to {position}")


def _stored_event(row: Row[Any]) -> StoredEvent:
    return StoredEvent(
        originator_id=UUID(row.stream), originator_version=row.version, topic=row.topic, state=bytes(row.data)
    )


def stored_entry(row: Row[Any]) -> StoredEntry:
    """Convert a row of the table `log` to the library's notification."""
    return StoredEntry(
        id=row.position,
        originator_id=UUID(row.stream),
        originator_version=row.version,
        topic=row.topic,
        state=bytes(row.data),
        origin=Origin(
            actor=row.actor,
            client=row.client,
            flow_id=row.flow_id,
            command_id=row.command_id,
            recorded_at=row.recorded_at,
        ),
    )


@contextlib.contextmanager
def _library_errors() -> Iterator[None]:
    try:
        yield
    except exc.IntegrityError as ex:
        raise IntegrityError(str(ex)) from ex
    except Unavailable as ex:
        raise OperationalError(str(ex)) from ex


# --- Converts log entries to stored events and back, with the event class of each topic ---


class UnreadableEntry(Unavailable):
    """An entry of the log can't be read by this version of the broker.

    Args:
        position: the position of the entry.
        reason: why it can't be read.
    """

    def __init__(self, position: int, reason: str) -> None:
        self.position, self.reason = position, reason
        super().__init__(
            f"The entry at position {position} of the log can't be read: {reason}. Run `rioni verify`: where the entry "
            "is what was written, use the version of Rioni that wrote it, or a newer one; else restore a backup."
        )


class NotReadByAll(Unavailable):
    """An event can't be written while nodes of an older release that could not read it are running.

    Args:
        topic: the topic of the event.
        number: the number of the log format in use until they are upgraded.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        super().__init__(
            f"A node of an older release is running, which reads the log up to format {number} and could not read what "
            f"this change records ({topic}). Upgrade all nodes, then try again."
        )


class LogMapper:
    """Has the interface of the library's `Mapper`, without looking up classes by their import path.

    Args:
        topics: the event class of each topic that may occur in the log.
        formats: the formats of the log.
    """

    def __init__(self, topics: Mapping[str, type[DomainEvent]], formats: Formats = FORMATS) -> None:
        self._topics, self._formats = topics, formats

    def to_stored_event(self, entry: LogEntry, number: int) -> StoredEvent:
        """Convert an entry to a stored event; the recorder adds position, origin and hash.

        Args:
            entry: the entry to store.
            number: the number of the current log format.

        Raises:
            NotReadByAll: the format can't represent it.
        """
        event = entry.event
        version = current_version(type(event))
        state: bytes | None = None
        if number == newest(self._formats):
            state = event.encode()
        elif 0 < (known := version_in(event.TOPIC, number, self._formats)) <= version:
            state = event.encode_as(known)
        if state is None:
            raise NotReadByAll(event.TOPIC, number)
        return StoredEvent(originator_id=entry.stream, originator_version=entry.version, topic=event.TOPIC, state=state)

    def to_domain_event(self, stored: StoredEntry) -> LogEntry:
        """Convert a stored event to its entry.

        Raises:
            UnreadableEntry: the topic is unknown, or the data does not fit it.
        """
        try:
            event = _decoded(self._topics, stored.topic, stored.state)
        except _Undecodable as ex:
            raise UnreadableEntry(stored.id, str(ex)) from ex
        assert isinstance(stored.originator_id, UUID)
        return LogEntry(
            position=stored.id,
            stream=stored.originator_id,
            version=stored.originator_version,
            event=event,
            origin=stored.origin,
        )


def decoding_error(topics: Mapping[str, type[DomainEvent]], topic: str, data: bytes) -> str | None:
    """Return why the data of an entry can't be read, or None."""
    try:
        _decoded(topics, topic, data)
    except _Undecodable as ex:
        return str(ex)
    return None


class _Undecodable(ValueError):
    """The data of an entry can't be read; the message says why."""


def _decoded(topics: Mapping[str, type[DomainEvent]], topic: str, data: bytes) -> DomainEvent:
    if (event_class := topics.get(topic)) is None:
        raise _Undecodable(f"this version of Rioni does not know the topic {topic}")
    try:
        return event_class.decode(data)
    except (UnknownMembers, msgspec.ValidationError) as ex:
        raise _Undecodable(f"its data does not fit the topic {topic}: {ex}") from ex
    except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError) as ex:
        # Upgrading from an older class may fail in any of these ways.
        raise _Undecodable(f"its data does not fit the topic {topic}: {ex!r}") from ex
