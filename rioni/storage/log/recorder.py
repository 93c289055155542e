"""Writes and reads the internal log through the eventsourcing library: its recorder, mapper and transcoder."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self
from uuid import UUID

import msgspec
from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import (
    IntegrityError,
    Mapper,
    MapperDeserialisationError,
    Notification,
    OperationalError,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    Transcoder,
)
from sqlalchemy import Connection, Engine, bindparam, exc, insert, select, update

from rioni.domain.aggregates import FORMATS, Formats, newest, version_in
from rioni.domain.errors import Unavailable
from rioni.domain.events import DomainEvent, Origin, UnknownMembers, current_version, decode_fields
from rioni.domain.hash_chain import Fields, LogHead, link
from rioni.domain.ports.event_log import LogEntry
from rioni.sql.log_tables import HEAD, LOG
from rioni.sql.tracking import SqlTrackingRecorder
from rioni.storage.sql.engines import reading, writing


# --- Records events for the event-sourcing library, on SQLAlchemy Core: appends, reads, and tracks consumers ---

NOBODY = Origin(actor="", client="", flow_id="", command_id="", recorded_at="")
ENTRIES_PER_READ = 1_000
POLL_S = 0.02
POSITION_MAX = 2**63 - 1

_COLUMNS = tuple(LOG.columns.keys())
_RECORDED_AT = select(LOG.c.recorded_at).where(LOG.c.position == HEAD.c.position).scalar_subquery()
_LOCK_HEAD = select(HEAD, _RECORDED_AT.label("recorded_at")).with_for_update()
_MOVE_HEAD = update(HEAD)
_INSERT_ENTRIES = insert(LOG)
_SELECT_ENTRIES = (
    select(LOG)
    .where(LOG.c.position > bindparam("after"), LOG.c.position <= bindparam("upto"))
    .order_by(LOG.c.position)
    .limit(bindparam("entries"))
)


@dataclass(frozen=True)
class StoredEntry(Notification):
    """A notification with the origin of its entry."""

    origin: Origin


class SqlRecorder(SqlTrackingRecorder, ProcessRecorder):
    """Records the events of all streams in one log with one hash chain.

    The appending transaction locks the row `head`, so writers wait for each other: positions have no gaps and become
    visible in order, on both databases.

    Args:
        reading: begins transactions that read, or joins one.
        writing: begins transactions that write, or joins one.
    """

    head: LogHead | None = None
    """The head of the log, if the joined transaction has locked it."""

    @classmethod
    def over(cls, engine: Engine) -> Self:
        """Return a recorder whose calls are transactions of their own, and raise the errors of the library."""
        return cls(partial(_translated, reading, engine), partial(_translated, writing, engine))

    # --- Appending ---

    def insert_events(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        tracking: Tracking | None = None,
        origin: Origin = NOBODY,
        **_: Any,
    ) -> Sequence[int]:
        """Append, and save a follower's position in the same transaction.

        Raises:
            IntegrityError: a version of a stream exists already, or the follower was already further.
            OperationalError: the database can't be used now.
        """
        with self._writing() as connection:
            before = self.head or lock_head(connection)
            after = _append(connection, before, stored_events, origin)
            if self.head is not None:
                self.head = after
            if tracking is not None:
                SqlTrackingRecorder.within(connection).insert_tracking(tracking)
        return list(range(before.position + 1, after.position + 1))

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
        with self._reading() as connection:
            rows = connection.execute(query)
            return [StoredEvent(UUID(row.stream), row.version, row.topic, bytes(row.data)) for row in rows]

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence["StoredEntry"]:
        """Return the entries of the log from a position on, in order."""
        after = start or 0
        bounds = {"after": after - inclusive_of_start, "upto": POSITION_MAX if stop is None else stop, "entries": limit}
        query = _SELECT_ENTRIES.where(LOG.c.topic.in_(topics)) if topics else _SELECT_ENTRIES
        with self._reading() as connection:
            return [_stored_entry(row) for row in connection.execute(query, bounds)]

    def max_notification_id(self) -> int | None:
        """Return the last position, None for an empty log."""
        with self._reading() as connection:
            return connection.scalar(select(HEAD.c.position)) or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> "Subscription[SqlRecorder]":
        """Return an endless iterator over the log, which blocks at its end until it is stopped."""
        return _PollingSubscription(self, gt, topics)


class _PollingSubscription(Subscription[SqlRecorder]):
    def __init__(self, recorder: SqlRecorder, gt: int | None, topics: Sequence[str]) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._log, self._after, self._wanted = recorder, gt, topics
        self._pulled: deque[Notification] = deque(maxlen=ENTRIES_PER_READ)
        self._ended = False

    def stop(self) -> None:
        """End the iteration, also in another thread."""
        super().stop()
        self._ended = True

    def __next__(self) -> Notification:
        while not self._ended:
            if self._pulled:
                notification = self._pulled.popleft()
                self._after = notification.id
                return notification
            found = self._log.select_notifications(
                self._after, ENTRIES_PER_READ, topics=self._wanted, inclusive_of_start=False
            )
            self._pulled.extend(found)
            if not found:
                time.sleep(POLL_S)
        raise StopIteration


def lock_head(connection: Connection) -> LogHead:
    """Lock the head of the log until the transaction ends, and return it."""
    return lock_log(connection)[0]


def lock_log(connection: Connection) -> tuple[LogHead, int, str | None]:
    """Lock the head of the log until the transaction ends.

    Returns:
        The head, the number of the log format, and the time of the last entry; None if it was committed while this
        transaction waited for the lock.
    """
    row = connection.execute(_LOCK_HEAD).one()
    return LogHead(row.position, bytes(row.hash)), row.format, row.recorded_at


def _append(connection: Connection, head: LogHead, events: Sequence[StoredEvent], origin: Origin) -> LogHead:
    """Append after the locked head; return the new head."""
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


def _stored_entry(row: Sequence[Any]) -> StoredEntry:
    # PERF: unpacking takes a third of the time of naming each column.
    position, stream, version, topic, recorded_at, actor, client, flow_id, command_id, data, _ = row
    origin = Origin(actor=actor, client=client, flow_id=flow_id, command_id=command_id, recorded_at=recorded_at)
    return StoredEntry(UUID(stream), version, topic, bytes(data), position, origin)


@contextlib.contextmanager
def _translated(begin: Callable[[Engine], AbstractContextManager[Connection]], engine: Engine) -> Iterator[Connection]:
    try:
        with begin(engine) as connection:
            yield connection
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


class EventTranscoder(Transcoder):
    """Encodes events as the JSON that the log has stored since its first release; decodes it without their class."""

    def encode(self, obj: DomainEvent | dict[str, Any]) -> bytes:
        """Encode an event, or the fields of an older class version; raises as `DomainEvent.encode`."""
        return obj.encode() if isinstance(obj, DomainEvent) else msgspec.json.encode(obj)

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decode the fields of an event, `class_version` included; raises msgspec.MsgspecError."""
        return decode_fields(data)


class LogMapper(Mapper[UUID]):
    """The library's mapper for entries of the log, without looking up classes by their import path.

    Args:
        topics: the event class of each topic that may occur in the log.
        formats: the formats of the log.
        number: the number of the format to write; None for the newest one.
    """

    def __init__(
        self, topics: Mapping[str, type[DomainEvent]], formats: Formats = FORMATS, number: int | None = None
    ) -> None:
        super().__init__(EventTranscoder())
        self._topics, self._formats = topics, formats
        self.format = newest(formats) if number is None else number
        """The number of the format that is written."""

    def in_format(self, number: int) -> "LogMapper":
        """Return the mapper that writes another format."""
        return self if number == self.format else LogMapper(self._topics, self._formats, number)

    def to_stored_event(self, domain_event: DomainEventProtocol[UUID]) -> StoredEvent:
        """Convert an entry to a stored event; the recorder adds position, origin and hash.

        Raises:
            NotReadByAll: the format can't represent it.
        """
        assert isinstance(domain_event, LogEntry)
        event = domain_event.event
        obj: DomainEvent | dict[str, Any] | None = None
        if self.format == newest(self._formats):
            obj = event
        elif 0 < (known := version_in(event.TOPIC, self.format, self._formats)) <= current_version(type(event)):
            obj = event.downcast(known)
        if obj is None:
            raise NotReadByAll(event.TOPIC, self.format)
        return StoredEvent(
            originator_id=domain_event.stream,
            originator_version=domain_event.version,
            topic=event.TOPIC,
            state=self.transcoder.encode(obj),
        )

    def to_domain_event(self, stored_event: StoredEvent) -> LogEntry:
        """Convert a notification of the log to its entry.

        Raises:
            UnreadableEntry: the topic is unknown, or the data does not fit it.
        """
        assert isinstance(stored_event, StoredEntry)
        try:
            event = self.decode(stored_event.topic, stored_event.state)
        except MapperDeserialisationError as ex:
            raise UnreadableEntry(stored_event.id, str(ex)) from ex
        assert isinstance(stored_event.originator_id, UUID)
        return LogEntry(
            position=stored_event.id,
            stream=stored_event.originator_id,
            version=stored_event.originator_version,
            event=event,
            origin=stored_event.origin,
        )

    def decode(self, topic: str, state: bytes) -> DomainEvent:
        """Decode the stored form of an event, upcasting older class versions.

        Raises:
            MapperDeserialisationError: the topic is unknown, or the data does not fit it.
        """
        if (event_class := self._topics.get(topic)) is None:
            raise MapperDeserialisationError(f"this version of Rioni does not know the topic {topic}")
        try:
            return event_class.decode_current(state) or event_class.upcast(self.transcoder.decode(state))
        except (UnknownMembers, msgspec.ValidationError) as ex:
            raise MapperDeserialisationError(f"its data does not fit the topic {topic}: {ex}") from ex
        except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError) as ex:
            # Upgrading from an older class may fail in any of these ways.
            raise MapperDeserialisationError(f"its data does not fit the topic {topic}: {ex!r}") from ex

    def decoding_error(self, topic: str, state: bytes) -> str | None:
        """Return why the stored form of an event can't be decoded, or None."""
        try:
            self.decode(topic, state)
        except MapperDeserialisationError as ex:
            return str(ex)
        return None
