"""Events as a consumer hands them out, and their JSON as objects of the application."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from rioni.client import values
from rioni.wire.base import Model
from rioni.wire.events import Cursor


if TYPE_CHECKING:
    from rioni.client.consumption.progress import StreamedPartition


# --- Decodes the JSON of events to objects of the application ---

Decode = Callable[[Any], Any]
"""Makes an object of the JSON of an event, as a buffer of bytes."""
Types = Any
"""A type, or types by the name of the event type; None for dictionaries."""


def decoder(types: Types) -> Callable[[str], Decode]:
    """Return a function that returns the decoder for the events of an event type, by its name.

    Args:
        types: a msgspec struct, a dataclass, a TypedDict, a Pydantic model, or whatever else msgspec decodes; or a
            mapping from names of event types to such. Events without a type become dictionaries.
    """
    default = _decode_as(dict[str, Any])
    if not isinstance(types, Mapping):
        only = default if types is None else _decode_as(types)
        return lambda _: only
    each = {name: _decode_as(kind) for name, kind in types.items()}
    return lambda event_type: each.get(event_type, default)


def _decode_as(kind: Any) -> Decode:
    if hasattr(kind, "model_validate_json"):
        return lambda raw: kind.model_validate_json(bytes(raw))
    return msgspec.json.Decoder(kind, float_hook=values.number).decode


# --- Events as a consumer hands them out ---

T = TypeVar("T")


class StreamPartition(NamedTuple):
    """A partition of a subscription."""

    event_type: str
    partition: str


class EventMetadata(Model):
    """The metadata of an event; None for missing members."""

    eid: str | None = None
    event_type: str | None = None
    occurred_at: datetime | None = None
    received_at: datetime | None = None
    partition: str | None = None
    partition_keys: list[str] | None = None
    partition_compaction_key: str | None = None
    parent_eids: list[str] | None = None
    flow_id: str | None = None
    version: str | None = None
    published_by: str | None = None
    span_ctx: dict[str, Any] | None = None


class _WithMetadata(msgspec.Struct):
    metadata: EventMetadata = msgspec.field(default_factory=EventMetadata)


_METADATA = msgspec.json.Decoder(_WithMetadata)
_LEAP_SECOND = re.compile("(?<=:[0-9]{2}:)60")


def _unusual_metadata(event: bytes | msgspec.Raw) -> EventMetadata:
    """Metadata with a time that Python can't represent: a leap second becomes the second after it.

    The time is None if it is in the year 0, or the second after it in the year 10000.
    """
    members = msgspec.json.decode(event).get("metadata")
    if isinstance(members, dict) and isinstance(text := members.get("occurred_at"), str):
        text, leap_seconds = _LEAP_SECOND.subn("59", text, count=1)
        try:
            at = msgspec.convert(text, datetime) + timedelta(seconds=leap_seconds)
        except OverflowError:
            at = None
        except msgspec.ValidationError:
            if not text.startswith("0000-"):
                raise
            at = None
        members = members | {"occurred_at": at}
    return msgspec.convert(members, EventMetadata)


class EventBatch(Generic[T]):
    """Events of one partition that the stream sent together; iterating gives the events.

    PERF: made for each batch, not for each event, so that an event is three references.
    """

    __slots__ = (
        "_commit",
        "before",
        "committed",
        "counted",
        "cursor",
        "decode",
        "dropped",
        "handled",
        "json",
        "progress",
    )

    def __init__(
        self,
        cursor: Cursor,
        json: Sequence[msgspec.Raw],
        *,
        progress: "StreamedPartition",
        decode: Callable[[Any], T],
        commit: Callable[["EventBatch[Any]", int], None],
    ) -> None:
        self.cursor = cursor
        """The cursor of the last event."""
        self.json = json
        """The JSON of each event, as it was published."""
        self.progress, self.decode, self._commit = progress, decode, commit
        self.before = progress.seen
        """An offset before the first event, None if none is known."""
        self.handled = 0
        """The number of the first events that are handled."""
        self.committed = 0
        """The number of the first events that are committed."""
        self.counted = 0
        """The number of handled events that the session has counted."""
        self.dropped = False
        """Whether the rest need not be handled: it will be delivered again, here or elsewhere."""

    @property
    def event_type(self) -> str:
        """The name of the event type."""
        return self.progress.partition.event_type

    @property
    def partition(self) -> str:
        """The id of the partition."""
        return self.progress.partition.partition

    def __len__(self) -> int:
        return len(self.json)

    def __iter__(self) -> Iterator["Event[T]"]:
        for index, raw in enumerate(self.json):
            yield Event(raw, self, index)

    def commit(self) -> None:
        """Say that these events are handled, and all before them in the partition; does not wait for the broker."""
        self._commit(self, len(self.json))

    def commit_until(self, index: int) -> None:
        """Commit as `commit` does, but only up to the event with an index."""
        self._commit(self, index + 1)


class Event(msgspec.Struct, Generic[T], eq=False):
    """An event; its contents are decoded when they are asked for."""

    _json: msgspec.Raw
    _batch: EventBatch[T]
    _index: int
    _data: Any = msgspec.UNSET

    @property
    def data(self) -> T:
        """The event, decoded once.

        Raises:
            msgspec.ValidationError: the event does not fit the type; Pydantic models raise their own errors.
        """
        if self._data is msgspec.UNSET:
            self._data = self._batch.decode(self._json)
        return self._data  # type: ignore[no-any-return]

    @property
    def raw(self) -> bytes:
        """The JSON as it was published, with the metadata that the broker added."""
        return bytes(self._json)

    @property
    def metadata(self) -> EventMetadata:
        """The metadata, decoded each time; raises msgspec.ValidationError."""
        try:
            return _METADATA.decode(self._json).metadata
        except msgspec.ValidationError:
            return _unusual_metadata(self._json)

    @property
    def event_type(self) -> str:
        """The name of the event type."""
        return self._batch.event_type

    @property
    def partition(self) -> str:
        """The id of the partition."""
        return self._batch.partition

    @property
    def cursor(self) -> Cursor:
        """The cursor of the last event of the batch that this event came in: brokers name no others."""
        return self._batch.cursor

    @property
    def offset(self) -> str | None:
        """The offset of this event; None if it can't be known, as others may have been removed or hidden before it."""
        batch = self._batch
        return of_event(batch.before, self._index, len(batch), batch.cursor.offset)

    def commit(self) -> None:
        """Say that this event is handled, and all before it in the partition; does not wait for the broker.

        Where not all events of the batch are handled, the cursor that is committed may be a little before this event.
        """
        self._batch.commit_until(self._index)

    def __repr__(self) -> str:
        return f"Event({self.event_type}, partition {self.partition}, {self.raw!r})"


# --- Offsets of cursors: which one comes first, and what may be committed inside a batch ---

_WRITTEN = re.compile(r"(001-[0-9a-f]{4}-)(-1|[0-9]{18})")
"""The canonical form; such offsets of one partition compare as strings."""


def is_redelivery(seen: str | None, count: int, end: str) -> bool:
    """Whether some events are known to be delivered again.

    Each event has its own position, and positions grow.

    Args:
        seen: the last offset that was delivered before, None if there is none.
        count: of the events.
        end: the offset of the last one.
    """
    if seen is None or seen == end:
        return seen is not None
    first, last = _WRITTEN.fullmatch(seen), _WRITTEN.fullmatch(end)
    if not first or not last:
        return False
    return seen > end or (first[1] == last[1] and int(last[2]) < int(first[2]) + count)


def offset_inside(before: str | None, count: int, end: str) -> str | None:
    """An offset that is not after the first `count` events of a batch, as near to them as can be determined.

    The n-th event after a position is n positions further, or more where others were removed or hidden.

    Args:
        before: the offset before the batch, None if it is unknown.
        count: of the first events of the batch.
        end: the offset of its last event.

    Returns:
        None if it can't be determined.
    """
    first, last = _WRITTEN.fullmatch(before or ""), _WRITTEN.fullmatch(end)
    if not first or not last or first[1] != last[1]:
        return None
    position = int(first[2]) + count
    return f"{first[1]}{position:018d}" if 0 <= position <= int(last[2]) else None


def of_event(before: str | None, index: int, count: int, end: str) -> str | None:
    """The offset of an event of a batch.

    Args:
        before: the offset before the batch, None if it is unknown.
        index: of the event in the batch.
        count: of the events of the batch.
        end: the offset of the last one.

    Returns:
        None if it can't be determined, as others may have been removed or hidden between.
    """
    if index == count - 1:
        return end
    return offset_inside(before, index + 1, end) if offset_inside(before, count, end) == end else None


def events_passed(committed: str, count: int, end: str) -> int:
    """The number of the first events of a batch that are known to be committed: never more than are.

    Args:
        committed: the offset that is committed.
        count: of the events.
        end: the offset of the last one.
    """
    if committed == end:
        return count
    first, last = _WRITTEN.fullmatch(committed), _WRITTEN.fullmatch(end)
    if not first or not last:
        return 0
    if committed > end:
        return count
    if first[1] != last[1]:
        return 0
    # At most as many events follow the offset as there are positions.
    return max(count - (int(last[2]) - int(first[2])), 0)
