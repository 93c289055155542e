"""The schemas of binary batches, which clients publish and consume, and the single-object encoding around a batch.

Names, order and types of all fields are those of Nakadi: its clients know both schemas by their fingerprints. Source:
reference schemas#endpoints, publishing#binary-batches.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fastavro.schema import fingerprint, to_parsing_canonical_form

from rioni.domain.errors import Malformed, NotFound


MEDIA_TYPE = "application/avro-binary"
PUBLISHING, CONSUMPTION = "batch.publishing", "batch.consumption"
LATEST = "1"

_NAMESPACE = "org.zalando.nakadi.generated.avro"
MARKER = b"\xc3\x01"
"""Marker at the start of every message in single-object encoding."""
_HEADER_BYTES = 10
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_UUID = {"type": "string", "logicalType": "uuid"}


class BatchSchema(NamedTuple):
    """One version of the schema of a batch."""

    version: str
    document: Mapping[str, Any]
    header: bytes
    """Header of a message in single-object encoding: a marker and the schema's fingerprint."""


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


def _record(name: str, *fields: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, **members, "fields": list(fields)}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _envelope(version: int) -> dict[str, Any]:
    """An event: its metadata, and a datum of the event type's schema."""
    suffix = "V0" if version == 0 else ""
    metadata = _record(
        f"Metadata{suffix}",
        _field("occurred_at", _MILLIS),
        _field("eid", _UUID),
        _optional("flow_id", "string"),
        _optional("received_at", _MILLIS),
        _field("version", "string"),
        _optional("published_by", "string"),
        _field("event_type", "string"),
        _optional("partition", "string"),
        _optional("partition_keys", _array("string")),
        _optional("partition_compaction_key", "string"),
        _optional("parent_eids", _array(_UUID)),
        _optional("span_ctx", "string"),
        *([_optional("event_owner", "string")] if version else []),
    )
    return _record(f"Envelope{suffix}", _field("metadata", metadata), _field("payload", "bytes"))


def _publishing(version: int) -> dict[str, Any]:
    suffix = "V0" if version == 0 else ""
    events = _field("events", _array(_envelope(version)))
    return _record(f"PublishingBatch{suffix}", events, namespace=_NAMESPACE)


def _consumption(version: int) -> dict[str, Any]:
    suffix = "V0" if version == 0 else ""
    cursor = _record(
        "SubscriptionCursor",
        _field("partition", "string"),
        _field("offset", "string"),
        _field("event_type", "string"),
        _field("cursor_token", "string"),
    )
    return _record(
        f"ConsumptionBatch{suffix}",
        _field("cursor", cursor),
        _optional("info", "string"),
        _field("events", _array(_envelope(version))),
        namespace=_NAMESPACE,
    )


def _batch_schema(version: int, document: dict[str, Any]) -> BatchSchema:
    return BatchSchema(str(version), document, single_object_header(to_parsing_canonical_form(document)))


def single_object_header(canonical_form: str) -> bytes:
    """Header of the data of a schema in single-object encoding.

    PERF: the fingerprint takes 0.1 µs for each character.
    """
    return MARKER + bytes.fromhex(fingerprint(canonical_form, "CRC-64-AVRO"))


BATCH_SCHEMAS: Mapping[str, Mapping[str, BatchSchema]] = MappingProxyType(
    {
        PUBLISHING: {str(version): _batch_schema(version, _publishing(version)) for version in (0, 1)},
        CONSUMPTION: {str(version): _batch_schema(version, _consumption(version)) for version in (0, 1)},
    }
)
"""The schemas of batches, by name and version."""


def batch_schema(name: str, version: str) -> BatchSchema:
    """One version of the schema of a batch.

    Raises:
        NotFound: there is no such name, or no such version.
    """
    try:
        return BATCH_SCHEMAS[name][version]
    except KeyError:
        raise NotFound(f"Avro schema not found for: {name[:100]}, version {version[:100]}") from None


def publishing_version(body: bytes) -> tuple[str, int]:
    """The version of a batch's schema, and the index at which its data begin.

    Raises:
        Malformed: it has no header of single-object encoding, or that of an unknown version.
    """
    if not body.startswith(MARKER) or len(body) < _HEADER_BYTES:
        raise Malformed("the body is not in Avro's single-object encoding: it has to begin with the bytes C3 01")
    for version, schema in BATCH_SCHEMAS[PUBLISHING].items():
        if body.startswith(schema.header):
            return version, _HEADER_BYTES
    raise Malformed(
        f"no version of {PUBLISHING} has the fingerprint {body[2:_HEADER_BYTES].hex()}; "
        f"GET /avro-schemas/{PUBLISHING}/versions lists them"
    )


def without_header(datum: bytes, header: bytes) -> bytes:
    """Strip the header of single-object encoding, if the datum begins with this one."""
    return datum[_HEADER_BYTES:] if datum.startswith(header) else datum
