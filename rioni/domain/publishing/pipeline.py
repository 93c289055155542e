"""The pure part of publishing: converts the events of a request to stored events, or to errors.

Sources: reference publishing#steps, publishing#results, publishing#delete-events. The steps stand in modules of their
own; each raises `StepFailed` at the first event that fails.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from random import Random
from typing import TypeVar

import msgspec
from jsonschema_rs import Draft4Validator

from rioni.domain.errors import Invalid
from rioni.domain.limits import Limits
from rioni.domain.publishing.batch import Batch
from rioni.domain.publishing.enrichment import enrich
from rioni.domain.publishing.headers import Headers, audience_scope, stored_key
from rioni.domain.publishing.owner import Owners, enriched_owners, submitted_owners
from rioni.domain.publishing.partitioning import assign
from rioni.domain.publishing.results import Events, ItemResult, StepFailed, sent_eid_of
from rioni.domain.publishing.rules import Publication, PublishRules
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema


# --- Validates a batch: the sizes of its events, and their content against a schema ---
#
# Sources: reference publishing#event-size, publishing#delete-events.

HAS_KEY = EventValidator(
    EffectiveSchema(
        {
            "type": "object",
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": {"partition_compaction_key": {"type": "string", "minLength": 1}},
                    "required": ["partition_compaction_key"],
                }
            },
            "required": ["metadata"],
        },
        Draft4Validator,
    )
)
"""The validator of the events in a delete request."""


def validate(batch: Batch, validator: EventValidator | NoJsonSchema, limits: Limits, *, reached: str) -> None:
    """Check all events in order.

    Args:
        batch: the events.
        validator: the validator of their schema.
        limits: the size of an event.
        reached: the step that all events have reached before.

    Raises:
        StepFailed: one of them is too large or not valid.
    """
    error = validator.first_error(batch.values, list(map(len, batch.raw)), limits.event_bytes_max)
    if error is not None:
        index, detail = error
        raise StepFailed("validating", index, detail, behind=reached)


T = TypeVar("T")

_STEP_BEFORE = {"validating": "none", "partitioning": "validating", "enriching": "partitioning"}


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is ready to be stored, or rejected."""

    events: Events
    """The decoded events, in the order of the request."""
    rejected: Sequence[ItemResult] = ()
    """One result per event if any of them is rejected: nothing may be stored. Empty otherwise."""
    partitions: Sequence[int] = ()
    """The partition of each event."""
    batches: Mapping[int, list[bytes]] = {}
    """The bytes of the events of each partition, in the order of the request; a tombstone has none."""
    headers: Mapping[int, list[Headers]] | None = None
    """Parallel to `batches`; None if no event has any."""
    ids: Mapping[int, list[str]] | None = None
    """Parallel to `batches`, the deduplication ids of events; None for those without one."""


def prepare(batch: Batch, rules: PublishRules, publication: Publication, random: Random) -> Prepared:
    """Validate, partition and enrich a batch. Pure and free of I/O; 250 µs for 100 events of 200 bytes.

    Args:
        batch: the events.
        rules: the rules of the event type.
        publication: the other data of the request.
        random: chooses partitions if the strategy is `random`.
    """
    values = batch.values
    partitions: Sequence[int] = ()
    try:
        owners = submitted_owners(values, rules.owner, publication.check_owner)
        validate(batch, rules.validator, rules.limits, reached="validating" if owners else "none")
        partitions = assign(values, rules.choose, rules.partitions, random)
        events: Sequence[bytes] = batch.lines
        if rules.enriches:
            events = enrich(events, values, partitions, rules, publication)
            owners = owners or enriched_owners(events, values, rules.owner, publication.check_owner)
    except StepFailed as ex:
        return Prepared(events=values, rejected=rejection(values, ex, partitions))
    headers = headers_of(values, owners, rules, publication)
    return prepared(values, partitions, events, headers, event_ids(rules.scope, values, headers) if rules.once else ())


def prepare_deletion(batch: Batch, rules: PublishRules, publication: Publication, random: Random) -> Prepared:
    """Convert a batch to tombstones for the keys of its events; arguments are those of `prepare`.

    The events are not validated against the schema, and not stored (reference publishing#delete-events).

    Raises:
        Invalid: the batch is empty, and no event of this event type can be deleted.
    """
    values = batch.values
    partitions: Sequence[int] = ()
    if rules.undeletable:
        if not values:
            raise Invalid(rules.undeletable)
        return Prepared(events=values, rejected=reject_all(values, rules.undeletable))
    try:
        owners = submitted_owners(values, rules.owner, publication.check_owner)
        validate(batch, HAS_KEY, rules.limits, reached="validating" if owners else "none")
        partitions = assign(values, rules.choose, rules.partitions, random)
        if rules.owner is not None and rules.owner.enriched:
            events = enrich(batch.raw, values, partitions, rules, publication)
            owners = enriched_owners(events, values, rules.owner, publication.check_owner)
    except StepFailed as ex:
        return Prepared(events=values, rejected=rejection(values, ex, partitions))
    headers = headers_of(values, owners, rules, publication)
    return prepared(values, partitions, [b""] * len(values), headers)


def headers_of(
    events: Events, owners: Owners, rules: PublishRules, publication: Publication
) -> Sequence[Headers] | None:
    """The headers of each event; None for no headers."""
    subscription_id = publication.subscription_id
    if not rules.compacts and not owners:
        return None if subscription_id is None else [Headers(subscription_id=subscription_id)] * len(events)
    return [
        Headers(
            key=stored_key(event["metadata"]["partition_compaction_key"], owner) if rules.compacts else None,
            owner=owner,
            subscription_id=subscription_id,
        )
        for event, owner in zip(events, owners or [None] * len(events), strict=True)
    ]


def prepared(
    values: Events,
    partitions: Sequence[int],
    events: Sequence[bytes],
    headers: Sequence[Headers] | None,
    ids: Sequence[str] = (),
) -> Prepared:
    """Sort the events to store by partition; all arguments are parallel."""
    return Prepared(
        events=values,
        partitions=partitions,
        batches=_by_partition(events, partitions),
        headers=None if headers is None else _by_partition(headers, partitions),
        ids=_by_partition(ids, partitions) if ids else None,
    )


def _by_partition(items: Iterable[T], partitions: Sequence[int]) -> dict[int, list[T]]:
    batches: dict[int, list[T]] = {partition: [] for partition in partitions}
    for item, partition in zip(items, partitions, strict=True):
        batches[partition].append(item)
    return batches


def rejection(events: Events, failure: StepFailed, partitions: Sequence[int] = ()) -> list[ItemResult]:
    """Results of a batch that is rejected because of one event.

    Earlier events passed this step; later ones never reached it.

    Args:
        events: all of them.
        failure: the step, the event, and the reason.
        partitions: the partitions of the events, if all are known.
    """
    partitions = failure.partitions or partitions
    behind = failure.behind or _STEP_BEFORE[failure.step]
    return [
        ItemResult(
            publishing_status="failed" if index == failure.index else "aborted",
            detail=failure.detail if index == failure.index else "",
            step=failure.step if index <= failure.index else behind,
            eid=sent_eid_of(event),
            partition=str(partitions[index]) if index < len(partitions) else None,
        )
        for index, event in enumerate(events)
    ]


def reject_all(events: Events, detail: str) -> list[ItemResult]:
    """Results of a batch that is rejected before any of its events was checked."""
    return [
        ItemResult(publishing_status="aborted", detail=detail, step="none", eid=sent_eid_of(event)) for event in events
    ]


def event_ids(scope: str, events: Events, headers: Sequence[Headers] | None) -> Sequence[str]:
    """The deduplication ids of events that have a valid eid; `headers` are parallel to them."""
    scopes = repeat(scope) if headers is None else (audience_scope(scope, each) for each in headers)
    return [f"{each}:{event['metadata']['eid'].lower()}" for each, event in zip(scopes, events, strict=False)]


def partial_results(events: Events, partitions: Sequence[int], failed: Mapping[int, str]) -> list[ItemResult]:
    """Results of all events when some partitions were not written, for a 207 response.

    Args:
        events: all of them.
        partitions: for each event its partition.
        failed: the reason for each partition that was not written, or whose outcome is unknown.
    """
    return [
        ItemResult(
            publishing_status="failed" if partition in failed else "submitted",
            detail=failed.get(partition, ""),
            step="publishing",
            eid=sent_eid_of(event),
            partition=str(partition),
        )
        for event, partition in zip(events, partitions, strict=True)
    ]
