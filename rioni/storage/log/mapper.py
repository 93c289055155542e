"""Converts log entries to stored events and back, with the event class of each topic."""

from collections.abc import Mapping
from uuid import UUID

import msgspec
from eventsourcing.persistence import StoredEvent

from rioni.domain.errors import Unavailable
from rioni.domain.events import DomainEvent, UnknownMembers, current_version
from rioni.domain.log_format import FORMATS, Formats, newest, version_in
from rioni.domain.ports.event_log import LogEntry
from rioni.storage.log.recorder import StoredEntry


class UnreadableEntry(Unavailable):
    """An entry of the log can't be read by this version of the broker.

    Args:
        position: of the entry.
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
        topic: of the event.
        number: of the log format in use until they are upgraded.
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
        formats: of the log.
    """

    def __init__(self, topics: Mapping[str, type[DomainEvent]], formats: Formats = FORMATS) -> None:
        self._topics, self._formats = topics, formats

    def to_stored_event(self, entry: LogEntry, number: int) -> StoredEvent:
        """Convert an entry to a stored event; the recorder adds position, origin and hash.

        Args:
            entry: the entry to store.
            number: of the current log format.

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
    """The data of an entry can't be read; the text says why."""


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
