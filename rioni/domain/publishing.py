"""The pure part of publishing: from a request's body to the bytes to be stored, or to what is wrong with it.

Sources: registry contract 6.1 (steps 2, 7, 8, 10) and 6.2.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from rioni.domain import partitioning
from rioni.domain.batch import Batch, one_line, split
from rioni.domain.enrichment import Enrichment, EnrichmentError
from rioni.domain.field_path import FieldPath, parse_path
from rioni.domain.formats import is_uuid
from rioni.domain.limits import Limits
from rioni.domain.partitioning import PartitionError
from rioni.domain.schema import effective_schema
from rioni.domain.validation import EventValidator


class ItemResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one event of a batch; its JSON is what the API answers."""

    publishing_status: str
    """`submitted`, `failed` or `aborted`."""
    detail: str
    step: str
    """`none`, `validating`, `partitioning`, `enriching` or `publishing`."""
    eid: str | UnsetType = UNSET
    """Absent where the event has none that is a UUID (D-20)."""
    partition: str | None = None
    """None as long as it is not known."""


class PublishRules(msgspec.Struct, frozen=True, kw_only=True):
    """What publishing to one version of an event type needs; built once, used for every batch."""

    name: str
    category: str
    partitions: int
    choose: partitioning.Choose | None
    """None where the partition is left to chance."""
    enriches: bool
    validator: EventValidator
    schema_version: str
    limits: Limits

    @classmethod
    def of(  # noqa: PLR0913 - the event type's own fields, by name
        cls,
        *,
        name: str,
        category: str,
        cleanup_policy: str,
        compatibility_mode: str,
        enrichment_strategies: Sequence[str],
        partition_strategy: str,
        partition_key_fields: Sequence[str],
        partitions: int,
        schema: str,
        schema_version: str,
        limits: Limits | None = None,
    ) -> "PublishRules":
        """Build the rules of an event type whose JSON schema has passed `check_schema`; takes about a millisecond.

        Args:
            name: the event type's name.
            category: `undefined`, `data` or `business`.
            cleanup_policy: `delete`, `compact` or `compact_and_delete`.
            compatibility_mode: `compatible`, `forward` or `none`.
            enrichment_strategies: empty, or `metadata_enrichment`.
            partition_strategy: `random`, `hash` or `user_defined`.
            partition_key_fields: dotted paths, with category `data` relative to that member.
            partitions: how many there are.
            schema: the text as submitted.
            schema_version: `major.minor.patch`.
            limits: of a batch and of an event.
        """
        effective = effective_schema(
            schema, name=name, category=category, compatibility_mode=compatibility_mode, cleanup_policy=cleanup_policy
        )
        return cls(
            name=name,
            category=category,
            partitions=partitions,
            choose=_chooser(partition_strategy, key_paths(category, partition_key_fields), partitions),
            enriches="metadata_enrichment" in enrichment_strategies,
            validator=EventValidator(effective),
            schema_version=schema_version,
            limits=limits or Limits(),
        )


def key_paths(category: str, fields: Iterable[str]) -> list[FieldPath]:
    """The paths of key fields from the root of the event (registry contract 3.3, 6.5)."""
    prefix = ("data",) if category == "data" else ()
    return [FieldPath((*prefix, *parse_path(field).segments)) for field in fields]


def _chooser(strategy: str, paths: Sequence[FieldPath], partitions: int) -> partitioning.Choose | None:
    if strategy == "hash":
        return partitioning.by_hash(paths, partitions)
    if strategy == "user_defined":
        return partitioning.by_publisher(partitions)
    return None


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is ready to be stored, or refused."""

    events: Sequence[Mapping[str, Any]]
    """What the events say, in the order of the request."""
    refused: Sequence[ItemResult] = ()
    """One result for each event if any of them is refused: nothing may be stored. Empty otherwise."""
    partitions: Sequence[int] = ()
    """For each event where it goes."""
    batches: Mapping[int, list[bytes]] = {}
    """For each partition the bytes of its events, in the order of the request."""

    @property
    def bytes_total(self) -> int:
        """How many bytes are to be stored."""
        return sum(sum(map(len, events)) for events in self.batches.values())

    def results(self, failed: Mapping[int, str]) -> list[ItemResult]:
        """What became of each event when storing failed, for a 207 answer.

        Args:
            failed: for each partition that could not be written why: `internal error`, `timed out` or `interrupted`.
        """
        return [
            ItemResult(
                publishing_status="failed" if partition in failed else "submitted",
                detail=failed.get(partition, ""),
                step="publishing",
                eid=_eid(event),
                partition=str(partition),
            )
            for event, partition in zip(self.events, self.partitions, strict=True)
        ]


def prepare(body: bytes, rules: PublishRules, *, now_ms: int, flow_id: str, publisher: str, random: Random) -> Prepared:
    """Split, validate, partition and enrich a batch. Pure and free of I/O; 330 µs for 100 events of 200 bytes.

    The contract knows a malformed body before it knows the event type: where the event type does not exist, call
    `batch.split` for its errors first.

    Args:
        body: the request's body, decompressed.
        rules: of the event type.
        now_ms: milliseconds since the epoch.
        flow_id: the request's.
        publisher: who publishes.
        random: chooses partitions where the strategy is `random`.

    Raises:
        Malformed: the body is not an array of objects (registry contract 6.3).
        TooLarge: too many bytes or events.
    """
    limits = rules.limits
    batch = split(body, events_max=limits.batch_events_max, bytes_max=limits.body_bytes_max)
    if (invalid := _first_invalid(batch, rules)) is not None:
        return _refused(batch.values, "validating", *invalid)
    partitions, unassigned = _assign(batch.values, rules, random)
    if unassigned is not None:
        return _refused(batch.values, "partitioning", len(partitions), unassigned, partitions)
    events = one_line(batch.raw) if b"\n" in body or b"\r" in body else batch.raw
    if rules.enriches:
        enrichment = Enrichment(
            event_type=rules.name,
            version=rules.schema_version,
            publisher=publisher,
            flow_id=flow_id,
            now_ms=now_ms,
        )
        events, unenriched = _enriched(events, batch.values, partitions, enrichment)
        if unenriched is not None:
            return _refused(batch.values, "enriching", len(events), unenriched, partitions)
    batches: dict[int, list[bytes]] = {partition: [] for partition in partitions}
    for event, partition in zip(events, partitions, strict=True):
        batches[partition].append(event)
    return Prepared(events=batch.values, partitions=partitions, batches=batches)


# --- the phases: each ends at the first event that fails ---


def _first_invalid(batch: Batch, rules: PublishRules) -> tuple[int, str] | None:
    bytes_max = rules.limits.event_bytes_max
    if rules.validator.all_valid(batch.values) and max(map(len, batch.raw), default=0) <= bytes_max:
        return None
    for index, (raw, event) in enumerate(zip(batch.raw, batch.values, strict=True)):
        if not rules.validator.is_valid(event):
            return index, rules.validator.explain(event)
        if len(raw) > bytes_max:
            return index, f"Event too large: {len(raw)} bytes, max size is {bytes_max} bytes"
    return None


def _assign(
    events: Sequence[Mapping[str, Any]], rules: PublishRules, random: Random
) -> tuple[Sequence[int], str | None]:
    """The partitions of all events, or of those before the first that has none, and why it has none."""
    if rules.choose is None:
        return partitioning.at_random(len(events), rules.partitions, random), None
    return _until_error(map(rules.choose, events), PartitionError)


def _enriched(
    events: Sequence[bytes],
    values: Sequence[Mapping[str, Any]],
    partitions: Sequence[int],
    enrichment: Enrichment,
) -> tuple[list[bytes], str | None]:
    metadata = [value.get("metadata") for value in values]
    return _until_error(map(enrichment.enrich, events, metadata, partitions), EnrichmentError)


def _until_error(items: Iterable[Any], error: type[Exception]) -> tuple[list[Any], str | None]:
    """The items before the first error, and its text."""
    done: list[Any] = []
    try:
        # PERF: extend runs in C, and keeps what came before an exception.
        done.extend(items)
    except error as ex:
        return done, str(ex)
    return done, None


# --- results ---

_STEP_BEFORE = {"validating": "none", "partitioning": "validating", "enriching": "partitioning"}


def _refused(
    events: Sequence[Mapping[str, Any]], step: str, failed: int, detail: str, partitions: Sequence[int] = ()
) -> Prepared:
    """The results when one event fails: those before it passed the step, those behind did not get there (6.2)."""
    results = [
        ItemResult(
            publishing_status="failed" if index == failed else "aborted",
            detail=detail if index == failed else "",
            step=step if index <= failed else _STEP_BEFORE[step],
            eid=_eid(event),
            partition=str(partitions[index]) if index < len(partitions) else None,
        )
        for index, event in enumerate(events)
    ]
    return Prepared(events=events, refused=results)


def _eid(event: Mapping[str, Any]) -> str | UnsetType:
    metadata = event.get("metadata")
    eid = metadata.get("eid") if isinstance(metadata, dict) else None
    return eid if isinstance(eid, str) and is_uuid(eid) else UNSET
