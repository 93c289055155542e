"""The pure part of binary publishing: converts the envelopes of a batch to stored events, or to errors.

Sources: reference publishing#binary-batches, publishing#results, publishing#delete-events, publishing#binary-checks.
The steps, and the results of events when a step fails, are those of publishing in JSON. Events are stored as JSON: the
datum as JSON, with the metadata as a member. The datum as published is stored with it, for consumers of binary
batches.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from rioni.domain.avro.binary import DatumError
from rioni.domain.avro.envelopes import Envelope, Metadata
from rioni.domain.avro.event_schema import EventSchema
from rioni.domain.errors import Invalid, TooLarge
from rioni.domain.publishing.enrichment import Enrichment
from rioni.domain.publishing.headers import NO_HEADERS
from rioni.domain.publishing.owner import OwnerSelector, enriched_owners, submitted_owners
from rioni.domain.publishing.partitioning import assign
from rioni.domain.publishing.pipeline import Prepared, event_ids, headers_of, prepared, rejection
from rioni.domain.publishing.results import Events, StepFailed
from rioni.domain.publishing.rules import Publication, PublishRules
from rioni.domain.schemas.patterns import is_uuid
from rioni.domain.schemas.validation import too_large
from rioni.domain.timestamps import EPOCH, utc_text


Schemas = Mapping[str, EventSchema | str]
"""Schemas by version, or the reason why there is no usable one."""

_decode_event = msgspec.json.Decoder(dict[str, Any]).decode
_decode_span_context = msgspec.json.Decoder(dict[str, str]).decode


def prepare_avro(
    envelopes: Sequence[Envelope],
    schemas: Schemas,
    rules: PublishRules,
    publication: Publication,
    random: Random,
    *,
    bytes_max: int,
) -> Prepared:
    """Validate, partition and enrich a batch; pure and free of I/O. PERF: 14 µs for an event of 10 fields.

    Args:
        envelopes: the events.
        schemas: the schemas of all versions that they name.
        rules: the rules of the event type.
        publication: the other data of the request.
        random: chooses partitions if the strategy is `random`.
        bytes_max: maximum length of the JSON of all events together: a few bytes may expand to much JSON.

    Raises:
        TooLarge: it is longer.
    """
    values = [{"metadata": _members(envelope.metadata)} for envelope in envelopes]
    partitions: Sequence[int] = ()
    check = publication.check_owner
    try:
        events = _validated(envelopes, values, schemas, rules, bytes_max)
        in_data = check is not None and rules.owner is not None and rules.owner.path is not None
        owners = submitted_owners(list(map(_decode_event, events)) if in_data else values, rules.owner, check)
        partitions = assign(values, rules.choose_by_keys, rules.partitions, random)
        if rules.enriches:
            events = _enriched(events, values, partitions, rules, publication)
            owners = owners or enriched_owners(events, values, rules.owner, check)
    except StepFailed as ex:
        return Prepared(events=values, rejected=rejection(values, ex, partitions))
    headers = headers_of(values, owners, rules, publication)
    with_data = [
        msgspec.structs.replace(header, avro=envelope.payload)
        for header, envelope in zip(headers or [NO_HEADERS] * len(envelopes), envelopes, strict=True)
    ]
    return prepared(
        values, partitions, events, with_data, event_ids(rules.scope, values, with_data) if rules.once else ()
    )


def prepare_avro_deletion(
    envelopes: Sequence[Envelope], rules: PublishRules, publication: Publication, random: Random
) -> Prepared:
    """Convert a batch to tombstones for the keys of its events; arguments are those of `prepare_avro`.

    Raises:
        Invalid: no event of this event type can be deleted.
    """
    if rules.undeletable:
        raise Invalid(rules.undeletable)
    values = [{"metadata": _members(envelope.metadata)} for envelope in envelopes]
    try:
        _check_deletions(envelopes, values, rules)
        named = values if rules.owner is None else [_with_owner(value, rules.owner) for value in values]
        owners = submitted_owners(named, rules.owner, publication.check_owner)
        partitions = assign(values, rules.choose_by_keys, rules.partitions, random)
        if rules.owner is not None and rules.owner.enriched:
            events = _enriched(list(map(msgspec.json.encode, values)), values, partitions, rules, publication)
            owners = enriched_owners(events, values, rules.owner, publication.check_owner)
    except StepFailed as ex:
        return Prepared(events=values, rejected=rejection(values, ex))
    headers = headers_of(values, owners, rules, publication)
    return prepared(values, partitions, [b""] * len(values), headers)


def _with_owner(value: dict[str, Any], selector: OwnerSelector) -> dict[str, Any]:
    """Return the members that give a deletion its event's owner: `metadata.event_owner`, at the selector's path."""
    owner = value["metadata"].get("event_owner")
    if owner is None or selector.path is None or selector.path.segments[0] == "metadata":
        return value
    inner: Any = owner
    for segment in reversed(selector.path.segments):
        inner = {segment: inner}
    return {**inner, **value}


# --- Validation ---


def _validated(
    envelopes: Sequence[Envelope],
    values: list[dict[str, Any]],
    schemas: Schemas,
    rules: PublishRules,
    bytes_max: int,
) -> Sequence[bytes]:
    """The events as JSON, not yet enriched."""
    events: list[bytes] = []
    total = 0
    for index, (envelope, value) in enumerate(zip(envelopes, values, strict=True)):
        metadata = value["metadata"]
        if flaw := _flaw(envelope.metadata, metadata, rules):
            raise StepFailed("validating", index, flaw)
        try:
            events.append(_json(envelope, metadata, schemas[envelope.metadata.version], rules.limits.event_bytes_max))
        except DatumError as ex:
            raise StepFailed("validating", index, str(ex)) from ex
        total += len(events[-1])
        if total > bytes_max:
            raise TooLarge(f"Batch too large: more than {bytes_max} bytes as JSON; send fewer events in one request")
    return events


def _check_deletions(envelopes: Sequence[Envelope], values: Events, rules: PublishRules) -> None:
    for index, (envelope, value) in enumerate(zip(envelopes, values, strict=True)):
        flaw = _flaw(envelope.metadata, value["metadata"], rules)
        if flaw or envelope.payload:
            raise StepFailed("validating", index, flaw or "Payload must be empty to delete events.")


def _flaw(metadata: Metadata, members: Mapping[str, Any], rules: PublishRules) -> str:
    """Why the metadata of an event is invalid; empty if it is valid."""
    if metadata.event_type != rules.name:
        return "event type does not match"
    if not is_uuid(metadata.eid):
        return "metadata.eid must be a UUID"
    if not all(map(is_uuid, metadata.parent_eids or ())):
        return "metadata.parent_eids must be UUIDs"
    if "occurred_at" not in members:
        return "metadata.occurred_at must be milliseconds since 1970 that lie in the years 1 to 9999"
    if rules.compacts and not metadata.partition_compaction_key:
        return "metadata.partition_compaction_key must be there, as the event type is compacted"
    return ""


def _json(envelope: Envelope, metadata: Mapping[str, Any], schema: EventSchema | str, bytes_max: int) -> bytes:
    if isinstance(schema, str):
        raise DatumError(schema)
    if len(envelope.payload) > bytes_max:
        raise DatumError(too_large(len(envelope.payload), bytes_max))
    try:
        datum = schema.json_of(envelope.payload)
    except DatumError as ex:
        raise DatumError(f"the payload is not of schema version {envelope.metadata.version}: {ex}") from ex
    comma = b"" if datum == b"{}" else b","
    event = b'%b%b"metadata":%b}' % (datum[:-1], comma, msgspec.json.encode(metadata))
    if len(event) > bytes_max:
        raise DatumError(f"Event too large: {len(event)} bytes as JSON, max size is {bytes_max} bytes")
    return event


# --- Metadata ---


def _members(metadata: Metadata) -> dict[str, Any]:
    """The metadata as a member of the event, without those that the publisher left out."""
    members = {
        "eid": metadata.eid,
        "occurred_at": _rfc3339(metadata.occurred_at),
        "event_type": metadata.event_type,
        "version": metadata.version,
        "flow_id": metadata.flow_id,
        "received_at": None if metadata.received_at is None else _rfc3339(metadata.received_at),
        "published_by": metadata.published_by,
        "partition": metadata.partition,
        "partition_keys": metadata.partition_keys,
        "partition_compaction_key": metadata.partition_compaction_key,
        "parent_eids": metadata.parent_eids,
        "span_ctx": None if metadata.span_ctx is None else _span_context(metadata.span_ctx),
        "event_owner": metadata.event_owner,
    }
    return {name: value for name, value in members.items() if value is not None}


def _rfc3339(at_ms: int) -> str | None:
    """The time as text; None if it is out of the calendar's range."""
    try:
        at = EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return None
    return utc_text(at)


def _span_context(text: str) -> dict[str, str] | str:
    """Parse the span context as a JSON object, its form in JSON events; return any other text unchanged."""
    try:
        return _decode_span_context(text)
    except msgspec.MsgspecError:
        return text


def _enriched(
    events: Sequence[bytes],
    values: Events,
    partitions: Sequence[int],
    rules: PublishRules,
    publication: Publication,
) -> Sequence[bytes]:
    """The events with their metadata enriched; each of them keeps its version."""
    by_version: dict[str, Enrichment] = {}
    enriched = []
    for event, value, partition in zip(events, values, partitions, strict=True):
        version = value["metadata"]["version"]
        if (enrichment := by_version.get(version)) is None:
            enrichment = by_version[version] = Enrichment(rules.name, version, publication)
        enriched.append(enrichment.enrich(event, value["metadata"], partition))
    return enriched
