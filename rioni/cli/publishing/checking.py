"""Checks events as a broker would: JSON, schema and partition; nothing is published."""

from collections.abc import Sequence
from random import Random

from rioni.client import EventType, ItemResult, PublishingFailed
from rioni.client.encoding import encode_batch
from rioni.domain.errors import Malformed, TooLarge
from rioni.domain.limits import Limits
from rioni.domain.publishing import partitioning
from rioni.domain.publishing.batch import Batch, split
from rioni.domain.publishing.pipeline import validate
from rioni.domain.publishing.results import StepFailed
from rioni.domain.publishing.rules import key_paths
from rioni.domain.schemas.effective_schema import EffectiveSchema, effective_schema
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema


JSON_SCHEMA_TYPE = "json_schema"


def schema_of(event_type: EventType) -> EffectiveSchema | None:
    """What events are validated against, with metadata; None where the schema is not a JSON schema.

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


class Check:
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
