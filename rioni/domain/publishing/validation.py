"""Validates a batch: the sizes of its events, and their content against a schema.

Sources: reference publishing#event-size, publishing#delete-events.
"""

from jsonschema_rs import Draft4Validator

from rioni.domain.limits import Limits
from rioni.domain.publishing.batch import Batch
from rioni.domain.publishing.results import StepFailed
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.schemas.validation import EventValidator, NoJsonSchema


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
"""Of the events in a delete request."""


def validate(batch: Batch, validator: EventValidator | NoJsonSchema, limits: Limits, *, reached: str) -> None:
    """Check all events, one after the other.

    Args:
        batch: the events.
        validator: of their schema.
        limits: the size of an event.
        reached: the step that all events have reached before.

    Raises:
        StepFailed: one of them is too large or not valid.
    """
    error = validator.first_error(batch.values, list(map(len, batch.raw)), limits.event_bytes_max)
    if error is not None:
        index, detail = error
        raise StepFailed("validating", index, detail, behind=reached)
