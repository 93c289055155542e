"""Writes binary batches for consumers: envelopes around the data as they were published.

Source: reference streams#parameters.

An event that was published in JSON has no datum: its envelope's payload is its JSON, as other consumers get it, and the
version in its metadata names a JSON schema. So nothing is lost or converted by guessing.
"""

import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import fastavro
import msgspec

from rioni.domain.avro.batches import CONSUMPTION, LATEST, batch_schema
from rioni.domain.schemas.formats import is_uuid
from rioni.domain.timestamps import parsed


NO_EID = "00000000-0000-0000-0000-000000000000"
"""The id of an event that has none: of an event type of category undefined."""

_BATCH = batch_schema(CONSUMPTION, LATEST)
_CURSOR, _INFO, _EVENTS = (fastavro.parse_schema(field["type"]) for field in _BATCH.document["fields"])
_END = b"\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class StoredEvent(NamedTuple):
    """An event as stored."""

    event_type: str
    json: bytes
    datum: bytes | None
    recorded_at_ms: int


def write_batch(cursor: Mapping[str, str], blocks: Sequence[bytes], info: str) -> bytes:
    """A batch in single-object encoding.

    Args:
        cursor: `partition`, `offset`, `event_type` and `cursor_token`.
        blocks: of events, each of them from `write_block`; none for a keep-alive.
        info: for humans; empty for none.
    """
    return b"".join((_BATCH.header, _written(_CURSOR, cursor), _written(_INFO, info or None), *blocks, _END))


def write_block(events: Sequence[StoredEvent]) -> bytes:
    """Some events as a block of an Avro array. PERF: 6 µs for each event."""
    return _written(_EVENTS, list(map(_envelope, events))).removesuffix(_END)


def _written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


class _Metadata(msgspec.Struct):
    """Metadata of a stored event; members may be missing in event types of category undefined."""

    occurred_at: str | None = None
    eid: str | None = None
    flow_id: str | None = None
    received_at: str | None = None
    version: str | None = None
    published_by: str | None = None
    partition: str | None = None
    partition_keys: list[str] | None = None
    partition_compaction_key: str | None = None
    parent_eids: list[str] | None = None
    span_ctx: str | dict[str, str] | None = None
    event_owner: str | None = None


class _Event(msgspec.Struct):
    metadata: _Metadata


_decode = msgspec.json.Decoder(_Event).decode


def _envelope(event: StoredEvent) -> dict[str, Any]:
    try:
        metadata = _decode(event.json).metadata
    except msgspec.DecodeError:
        metadata = _Metadata()
    members: dict[str, Any] = msgspec.structs.asdict(metadata)
    members["event_type"] = event.event_type
    members["eid"] = metadata.eid if is_uuid(metadata.eid or "") else NO_EID
    if not all(map(is_uuid, metadata.parent_eids or ())):
        members["parent_eids"] = None
    members["version"] = metadata.version or ""
    members["received_at"] = _milliseconds(metadata.received_at)
    occurred_at_ms = _milliseconds(metadata.occurred_at)
    members["occurred_at"] = event.recorded_at_ms if occurred_at_ms is None else occurred_at_ms
    if isinstance(metadata.span_ctx, dict):
        members["span_ctx"] = msgspec.json.encode(metadata.span_ctx).decode()
    return {"metadata": members, "payload": event.json if event.datum is None else event.datum}


def _milliseconds(rfc3339: str | None) -> int | None:
    """Parse a time; None if it is invalid, as events of category undefined may hold anything."""
    if rfc3339 is None:
        return None
    try:
        at = parsed(rfc3339)
    except (ValueError, OverflowError):
        return None
    return None if at.tzinfo is None else (at - _EPOCH) // timedelta(milliseconds=1)
