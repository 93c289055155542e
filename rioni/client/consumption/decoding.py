"""Decodes the JSON of events to objects of the application."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rioni.client import values


Decode = Callable[[Any], Any]
"""Makes an object of the JSON of an event, as a buffer of bytes."""
Types = Any
"""A type, or types by the name of the event type; None for dictionaries."""


def decoder(types: Types) -> Callable[[str], Decode]:
    """Return a function that returns the decoder for the events of an event type, by its name.

    Args:
        types: a msgspec struct, a dataclass, a TypedDict, a Pydantic model, or whatever else msgspec decodes; or a
            mapping from names of event types to such. Events without a type become dictionaries.
    """
    default = _decode_as(dict[str, Any])
    if not isinstance(types, Mapping):
        only = default if types is None else _decode_as(types)
        return lambda _: only
    each = {name: _decode_as(kind) for name, kind in types.items()}
    return lambda event_type: each.get(event_type, default)


def _decode_as(kind: Any) -> Decode:
    if hasattr(kind, "model_validate_json"):
        return lambda raw: kind.model_validate_json(bytes(raw))
    return msgspec.json.Decoder(kind, float_hook=values.number).decode
