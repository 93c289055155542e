"""Models for the events of event types: Python source from their schemas."""

from collections.abc import Sequence

import msgspec

from rioni.client.codegen.avro_schema import to_json_schema
from rioni.client.codegen.model_classes import ModelClasses
from rioni.client.codegen.model_source import source
from rioni.wire.event_types import EventType


def event_models(event_types: Sequence[EventType], *, style: str = "msgspec", formats: bool = True) -> str:
    """A module of Python with a class for the events of each event type, and for the objects in them.

    Args:
        event_types: with their schemas.
        style: `msgspec` (structs) or `dataclass`.
        formats: whether texts with the format `date-time`, `date` or `uuid` become `datetime`, `date` and `UUID`.

    Raises:
        ValueError: a schema can't be read, or the style can't express it.
    """
    classes, events = ModelClasses(formats=formats), dict[str, str]()
    for event_type in event_types:
        try:
            schema = event_type.schema.parsed()
            if event_type.schema.type == "avro_schema":
                schema = to_json_schema(schema)
            name, text = classes.add(event_type.name, schema, event_type.category)
        except (ValueError, msgspec.MsgspecError) as ex:
            raise ValueError(f"{event_type.name}: {ex}") from ex
        events[name] = text
    names = ", ".join(event_type.name for event_type in event_types)
    return source(f"Events of {names}.", events, classes.classes, style=style)
