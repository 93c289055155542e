"""The contents of events: objects of the application, metadata, and offsets of events inside a batch."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rioni.client import values
from rioni.wire.base import Model


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


# --- Metadata ---


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


def metadata_of(event: msgspec.Raw) -> EventMetadata:
    """The metadata of an event; raises msgspec.ValidationError."""
    try:
        return _METADATA.decode(event).metadata
    except msgspec.ValidationError:
        return _unusual_metadata(event)


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


# --- Offsets of cursors: which one comes first, and what may be committed inside a batch ---
#
# Offsets have a meaning for the broker alone. Those of the form that this API writes, `001-<timeline>-<position>`, are
# compared and counted; nothing is done with others, so that the client works with every server.

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
