"""Maps log entries to stored events: which class reads which topic."""

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
    """An entry of the log is not one that this version of the broker can read.

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
    """An event can't be written while nodes of an older release are running: they could not read it.

    Args:
        topic: of the event.
        number: of the format that the log is written in until they are upgraded.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        super().__init__(
            f"A node of an older release is running, which reads the log up to format {number} and could not read what "
            f"this change records ({topic}). Upgrade all nodes, then try again."
        )


class LogMapper:
    """Has the interface of the library's `Mapper`, without looking up classes by their path.

    Args:
        topics: for each topic that may stand in the log its class.
        formats: of the log.
    """

    def __init__(self, topics: Mapping[str, type[DomainEvent]], formats: Formats = FORMATS) -> None:
        self._topics, self._formats = topics, formats

    def to_stored_event(self, entry: LogEntry, number: int) -> StoredEvent:
        """What is stored of an entry; the recorder adds position, origin and hash.

        Args:
            entry: what happened.
            number: of the format that the log is written in.

        Raises:
            NotReadByAll: the format can't hold it.
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
        """The entry that was stored.

        Raises:
            UnreadableEntry: the topic is unknown, or the data does not fit it.
        """
        if (event_class := self._topics.get(stored.topic)) is None:
            raise UnreadableEntry(stored.id, f"this version of Rioni does not know the topic {stored.topic}")
        try:
            event = event_class.decode(stored.state)
        except (UnknownMembers, msgspec.ValidationError) as ex:
            raise UnreadableEntry(stored.id, f"its data does not fit the topic {stored.topic}: {ex}") from ex
        except (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError) as ex:
            # The step from an older class may stumble over anything.
            raise UnreadableEntry(stored.id, f"its data does not fit the topic {stored.topic}: {ex!r}") from ex
        assert isinstance(stored.originator_id, UUID)
        return LogEntry(
            position=stored.id,
            stream=stored.originator_id,
            version=stored.originator_version,
            event=event,
            origin=stored.origin,
        )
