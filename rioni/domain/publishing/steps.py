"""The steps of publishing between reading a batch and storing it; each refuses the batch at the first event that fails.

Sources: reference publishing#steps, 6.2 and 6.6.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import AccessDenied
from rioni.domain.event_types.owner import CheckOwner, OwnerSelector
from rioni.domain.publishing import partitioning
from rioni.domain.publishing.batch import Batch
from rioni.domain.publishing.enrichment import Enrichment, EnrichmentError
from rioni.domain.publishing.partitioning import PartitionError
from rioni.domain.publishing.results import Events, eid_of, refusal
from rioni.domain.publishing.rules import PublishRules
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema


Owners = Sequence[Attribute | None]
"""For each event its owner; empty if there is no owner selector."""


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a request that apply to all of its events."""

    now_ms: int
    """Time of receipt, in milliseconds since the epoch."""
    flow_id: str
    publisher: str
    """Name of the publishing subject."""
    span_ctx: Mapping[str, str] | None = None
    """For events without a span context of their own."""
    subscription_id: str | None = None
    """The only subscription that gets the events; None for all."""
    check_owner: CheckOwner | None = None
    """Checks whether the publisher may write for an owner; None if there is no owner selector."""


def submitted_owners(events: Events, rules: PublishRules, publication: Publication) -> Owners:
    """The owners in events as received (step 6).

    Raises:
        BatchRefused: the publisher may not write in the name of one of them.
    """
    finder, check = rules.owner, publication.check_owner
    if finder is None or check is None or finder.enriched:
        return ()
    owners, denied = _until_error((_owner(event, event, finder, check) for event in events), AccessDenied)
    if denied is not None:
        raise refusal(events, "validating", len(owners), denied)
    return owners


def enriched_owners(
    enriched: Sequence[bytes],
    events: Events,
    partitions: Sequence[int],
    rules: PublishRules,
    publication: Publication,
) -> Owners:
    """The owners in metadata that the broker writes (reference publishing#event-owners).

    Raises:
        BatchRefused: the publisher may not write in the name of one of them.
    """
    finder, check = rules.owner, publication.check_owner
    if finder is None or check is None or not finder.enriched:
        return ()
    stored = map(_decode, enriched)
    pairs = zip(stored, events, strict=True)
    owners, denied = _until_error((_owner(found, event, finder, check) for found, event in pairs), AccessDenied)
    if denied is not None:
        raise refusal(events, "enriching", len(owners), denied, partitions=partitions, behind="enriching")
    return owners


_decode = msgspec.json.Decoder(dict[str, Any]).decode


def _owner(
    found: Mapping[str, Any], event: Mapping[str, Any], finder: OwnerSelector, check: CheckOwner
) -> Attribute | None:
    owner = finder.find(found)
    if owner is not None:
        check(owner, eid_of(event) or "")
    return owner


def validate(
    batch: Batch, validator: EventValidator | NoJsonSchema, rules: PublishRules, *, passed: str = "none"
) -> None:
    """Check all events against a schema and for their size, event by event (reference publishing#steps).

    Args:
        batch: the events.
        validator: of the schema.
        rules: of the event type.
        passed: the step that all events have reached before.

    Raises:
        BatchRefused: one of them is not valid or too large.
    """
    bytes_max = rules.limits.event_bytes_max
    sizes = list(map(len, batch.raw))
    for portion in validator.portions(sizes):
        largest = max(sizes[portion], default=0)
        suspicious = largest > bytes_max or validator.takes_long(largest)
        if not suspicious and validator.all_valid(batch.values[portion]):
            continue
        for index in range(portion.start, portion.stop):
            if (detail := _complaint(batch.values[index], sizes[index], validator, bytes_max)) is not None:
                raise refusal(batch.values, "validating", index, detail, behind=passed)


def _complaint(
    event: Mapping[str, Any], size: int, validator: EventValidator | NoJsonSchema, bytes_max: int
) -> str | None:
    """The error of one event, or None. Events that are too large or too expensive are rejected without validation."""
    if size > bytes_max:
        return f"Event too large: {size} bytes, max size is {bytes_max} bytes"
    if validator.takes_too_long(event, size):
        return "#: the event is too large for this schema: checking it would take too long"
    return None if validator.is_valid(event) else validator.explain(event)


def assign(events: Events, rules: PublishRules, random: Random) -> Sequence[int]:
    """The partition of each event (step 8).

    Raises:
        BatchRefused: one of them has none.
    """
    if rules.choose is None:
        return partitioning.at_random(len(events), rules.partitions, random)
    partitions, unassigned = _until_error(map(rules.choose, events), PartitionError)
    if unassigned is not None:
        raise refusal(events, "partitioning", len(partitions), unassigned, partitions=partitions)
    return partitions


def enrich(
    events: Sequence[bytes],
    values: Events,
    partitions: Sequence[int],
    rules: PublishRules,
    publication: Publication,
) -> Sequence[bytes]:
    """The events with their metadata enriched (step 10).

    Raises:
        BatchRefused: one of them has no metadata; can't happen to what has been validated.
    """
    enrichment = Enrichment(
        event_type=rules.name,
        version=rules.schema_version,
        publisher=publication.publisher,
        flow_id=publication.flow_id,
        now_ms=publication.now_ms,
        span_ctx=publication.span_ctx,
    )
    metadata = [value.get("metadata") for value in values]
    enriched, unenriched = _until_error(map(enrichment.enrich, events, metadata, partitions), EnrichmentError)
    if unenriched is not None:
        raise refusal(values, "enriching", len(enriched), unenriched, partitions=partitions)
    return enriched


def _until_error(items: Iterable[Any], error: type[Exception]) -> tuple[list[Any], str | None]:
    """The items before the first error, and its text."""
    done: list[Any] = []
    try:
        # PERF: extend runs in C, and keeps what came before an exception.
        done.extend(items)
    except error as ex:
        return done, str(ex)
    return done, None
