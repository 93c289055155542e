"""Rules, events and results of publishing, for tests of the pure pipeline."""

import json
from random import Random
from typing import Any

import msgspec

from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.domain.publishing.batch import split
from rioni.domain.publishing.pipeline import Prepared, prepare, prepare_deletion
from rioni.domain.publishing.rules import Publication, PublishRules
from tests.support.builders import event_type


SCHEMA = {"properties": {"order_id": {"type": "string"}, "brand": {}}, "required": ["order_id"]}
EIDS = [f"{n:08d}-3c52-4d8c-9b50-0f2b7f6d2a11" for n in range(5)]


def rules(*, partitions: int = 1, schema: Any = SCHEMA, limits: Any = None, **changes: Any) -> PublishRules:
    """The rules of a business event type."""
    submitted = SubmittedSchema(type="json_schema", schema=json.dumps(schema))
    return PublishRules.of(event_type(schema=submitted, **changes), partitions=partitions, limits=limits)


BUSINESS = rules()


def publish(events: Any, by: PublishRules = BUSINESS, *, deletes: bool = False, **members: Any) -> Prepared:
    """Prepare a batch, given as bytes or as a value, for storing or for deletion."""
    body = events if isinstance(events, bytes) else json.dumps(events).encode()
    says: dict[str, Any] = {
        "received_at": "2024-01-02T03:04:05.123Z",
        "flow_id": "AbC",
        "publisher": "unauthenticated",
        **members,
    }
    return (prepare_deletion if deletes else prepare)(split(body, by.limits), by, Publication(**says), Random(1))


def event(index: int = 0, **members: Any) -> dict[str, Any]:
    """A valid event."""
    metadata = {"eid": EIDS[index], "occurred_at": "2024-01-02T03:04:05Z", **members.pop("metadata", {})}
    return {"order_id": str(index), "metadata": metadata, **members}


def rejections(events: Any, by: PublishRules = BUSINESS, **arguments: Any) -> Any:
    """The results of a batch that must be rejected, as JSON."""
    prepared = publish(events, by, **arguments)
    assert not prepared.batches
    assert len(prepared.rejected) == len(events)
    return msgspec.to_builtins(prepared.rejected)


def item(status: str, step: str, index: int, detail: str = "", partition: str | None = None) -> dict[str, Any]:
    """A result as JSON."""
    return {
        "publishing_status": status,
        "detail": detail,
        "step": step,
        "eid": EIDS[index],
        "partition": partition,
    }
