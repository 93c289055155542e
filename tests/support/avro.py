"""Avro schemas, data and binary batches, made by fastavro, independently of the broker's own code."""

import io
import json
from typing import Any

import fastavro

from rioni.domain.avro.binary import PUBLISHING, batch_schema
from rioni.domain.event_types.event_type import SubmittedSchema


ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "order_id", "type": "string"}, {"name": "amount", "type": ["null", "long"], "default": None}],
}
EID = "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11"


def record(*fields: Any, name: str = "Order", **members: Any) -> dict[str, Any]:
    """A record; fields are dicts or pairs of a name and a type."""
    full = [{"name": field[0], "type": field[1]} if isinstance(field, tuple) else field for field in fields]
    return {"type": "record", "name": name, "fields": full, **members}


def avro_schema(document: Any = ORDER) -> SubmittedSchema:
    """A schema as a client submits it."""
    return SubmittedSchema(type="avro_schema", schema=json.dumps(document))


def datum(value: Any, schema: Any = ORDER) -> bytes:
    """A value in Avro's binary encoding."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def envelope(payload: bytes, **metadata: Any) -> dict[str, Any]:
    """An event as a client publishes it."""
    return {
        "metadata": {"occurred_at": 1_700_000_000_000, "eid": EID, "version": "1.0.0", "event_type": "order.created"}
        | metadata,
        "payload": payload,
    }


def batch(*envelopes: dict[str, Any], version: str = "1") -> bytes:
    """The body of a binary publish request."""
    schema = batch_schema(PUBLISHING, version)
    return schema.header + datum({"events": list(envelopes)}, dict(schema.document))
