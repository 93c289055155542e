"""Checks events as a broker would, and what people write about events, against schemas; nothing is published."""

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random

from rioni.client import Client, EventType, ItemResult, PublishingFailed
from rioni.client.encoding import encode_batch
from rioni.domain.errors import Invalid, Malformed, TooLarge
from rioni.domain.limits import Limits
from rioni.domain.publishing import partitioning
from rioni.domain.publishing.batch import Batch, split
from rioni.domain.publishing.pipeline import validate
from rioni.domain.publishing.results import StepFailed
from rioni.domain.publishing.rules import key_paths
from rioni.domain.schemas.effective_schema import EffectiveSchema, effective_schema
from rioni.domain.schemas.field_path import TooMuchToLookFor
from rioni.domain.schemas.path_check import PathFound, Standing, path_in
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema
from rioni.domain.texts import nearest


# --- Checks events as a broker would: JSON, schema and partition; nothing is published ---

JSON_SCHEMA_TYPE = "json_schema"


def schema_of(event_type: EventType) -> EffectiveSchema | None:
    """The schema, with metadata, that events are validated against; None if it is not a JSON schema.

    Raises:
        Invalid: the schema uses a draft that is not known.
    """
    if event_type.schema.type != JSON_SCHEMA_TYPE:
        return None
    return effective_schema(
        event_type.schema.schema,
        name=event_type.name,
        category=event_type.category,
        compatibility_mode=event_type.compatibility_mode,
        cleanup_policy=event_type.cleanup_policy,
    )


class CheckingPublisher:
    """Takes the place of a client's `publish`.

    Args:
        event_type: as the broker has it.
        partitions: how many there are.
    """

    def __init__(self, event_type: EventType, partitions: int) -> None:
        schema = schema_of(event_type)
        self._name, self._partitions = event_type.name, partitions
        self._validator = NoJsonSchema(event_type.name) if schema is None else EventValidator(schema)
        self._choose: partitioning.Choose | None = None
        if event_type.partition_strategy == "hash":
            paths = key_paths(event_type.category, event_type.partition_key_fields)
            self._choose = partitioning.by_hash(paths, partitions)
        elif event_type.partition_strategy == "user_defined":
            self._choose = partitioning.by_publisher(partitions)

    def publish(self, events: Sequence[bytes], _key: str) -> None:
        """Check a batch.

        Raises:
            PublishingFailed: with the first event that the broker would refuse.
        """
        try:
            self._check(split(encode_batch(events)))
        except (Malformed, TooLarge):
            for index, event in enumerate(events):
                try:
                    self._check(split(encode_batch([event])))
                except (Malformed, TooLarge) as ex:
                    raise self._failed(events, index, "validating", str(ex)) from ex
                except StepFailed as ex:
                    raise self._failed(events, index, ex.step, ex.detail) from ex
        except StepFailed as ex:
            raise self._failed(events, ex.index, ex.step, ex.detail) from ex

    def _check(self, batch: Batch) -> None:
        validate(batch, self._validator, Limits(), reached="none")
        partitioning.assign(batch.values, self._choose, self._partitions, Random(0))  # noqa: S311 - it decides nothing

    def _failed(self, events: Sequence[bytes], failed: int, step: str, detail: str) -> PublishingFailed:
        results = [ItemResult(publishing_status="aborted")] * len(events)
        results[failed] = ItemResult(publishing_status="failed", step=step, detail=detail)
        return PublishingFailed(self._name, results)


# Checks what people write about events, such as paths of columns and filters, against the schemas of event types.


def check_paths(event_types: Sequence[EventType], paths: Sequence[str]) -> list[str]:
    """Check paths with dots between names of members and numbers of items.

    Args:
        event_types: whose events have them. Nothing is checked if one has an Avro schema, or one that Rioni does not
            accept.
        paths: from the root of the event.

    Returns:
        Warnings about paths that no schema declares, though events may have them.

    Raises:
        Invalid: no valid event of any of the event types can have a path.
    """
    schemas = [_schema_of(each) for each in event_types]
    known = [each for each in schemas if each is not None]
    if len(known) < len(schemas):
        return []
    names = " or ".join(each.name for each in event_types)
    return [warning for path in paths if (warning := _checked(known, path, names)) is not None]


def check_filter_of(event_types: Sequence[EventType], expression: str) -> Sequence[str]:
    """Check a filter by the rule of subscriptions.

    Args:
        event_types: whose events are filtered.
        expression: in CEL.

    Returns:
        Warnings about paths that no schema declares, or that only some of the schemas exclude.

    Raises:
        Invalid: it is not such an expression, or it can be true for no valid event.
    """
    # PERF: the import takes 0.3 s, for which only users of a filter wait.
    from rioni.domain.subscriptions.filter_check import check_filter

    return check_filter(expression, {each.name: _schema_of(each) for each in event_types})


def filters_that_lose(client: Client, before: EventType, after: EventType) -> list[str]:
    """Warnings about filters of subscriptions that read members which a change of a schema excludes.

    Args:
        client: of the broker; asked for the subscriptions.
        before: the event type as it is.
        after: as it will be.
    """
    from rioni.domain.subscriptions.filter_check import newly_excluded

    old, new = _schema_of(before), _schema_of(after)
    return [
        f"the filter of {each.owning_application}/{each.consumer_group} matches nothing then: {error}"
        for each in client.subscriptions.list(event_types=[after.name])
        if each.filter
        for error in newly_excluded(each.filter, after.name, old, new)
    ]


def _schema_of(event_type: EventType) -> EffectiveSchema | None:
    try:
        return schema_of(event_type)
    except (Invalid, ValueError):  # another server accepts other schemas
        return None


def _checked(schemas: Sequence[EffectiveSchema], path: str, event_types: str) -> str | None:
    try:
        found = [each for schema in schemas for each in _readings(schema, path)]
    except TooMuchToLookFor:
        return None
    if any(each.standing is Standing.DECLARED for each in found):
        return None
    advice = _advice(path, found)
    if all(each.standing is Standing.EXCLUDED for each in found):
        raise Invalid(f"No event of {event_types} has {path}: the schema excludes it{advice}")
    return f"No schema of {event_types} declares {path}{advice}"


def _readings(schema: EffectiveSchema, path: str) -> Iterator[PathFound]:
    """A number in a path is an item of an array, or the name of a member."""
    choices: list[tuple[str | int, ...]] = [
        (name, int(name)) if name.isdecimal() else (name,) for name in path.split(".")
    ]
    for segments in product(*choices):
        yield path_in(schema, segments)


def _advice(path: str, found: Sequence[PathFound]) -> str:
    names = sorted({name for each in found for name in each.names})
    near = [name for part in path.split(".") if (name := nearest(part, names))]
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}." if names else "."
