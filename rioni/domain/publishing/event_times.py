"""The time at which an event came to the broker, as its metadata say."""

from datetime import UTC, datetime

import msgspec

from rioni.domain.timestamps import parsed


class _Metadata(msgspec.Struct):
    received_at: str | None = None
    occurred_at: str | None = None


class _Timed(msgspec.Struct):
    metadata: _Metadata | None = None


_decode = msgspec.json.Decoder(_Timed).decode


def time_of(event: msgspec.Raw | bytes) -> datetime | None:
    """When the broker has received an event, otherwise when it occurred; None where its metadata do not say so."""
    try:
        metadata = _decode(event).metadata
        text = metadata and (metadata.received_at or metadata.occurred_at)
        found = parsed(text) if text else None
    except (msgspec.MsgspecError, ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found
