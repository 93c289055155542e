"""Gives the schemas within others places of their own: generators of clients make a type for each, with its name."""

from collections.abc import Mapping
from typing import Any

from rioni.http.openapi.builders import Json, schema


_ABOUT = frozenset(("description", "default", "example", "examples"))
"""What is said of a member, not of the type that it shares with others."""
_VERBATIM = frozenset(("default", "enum", "example", "examples"))
"""Keywords whose values are no schemas."""
_WHOLE_NUMBERS: Json = {"format": "int64"}
_ANYTHING: Json = {"additionalProperties": {}}


class NamedSchemas:
    """Collects the schemas with a title, which is their name, and leaves references in their places.

    Whole numbers are said to have 64 bits, and objects of which nothing is said to have any members: generators take
    the first for 32 bits and the second for empty.
    """

    def __init__(self) -> None:
        self.found: dict[str, Json] = {}

    def referring(self, part: Any) -> Any:
        """A part of a document with references for the schemas that have a title.

        Raises:
            AssertionError: two schemas have the same title.
        """
        match part:
            case {"title": str(name), "type": str() | list()}:
                return self._reference(name, part)
            case Mapping():
                return self._complete({key: self._value(key, value) for key, value in part.items()})
            case list() | tuple():
                return [self.referring(each) for each in part]
        return part

    def members_of(self, component: Json) -> Json:
        """A schema that has its place, and name, already: only what is within it is collected."""
        return dict(self.referring({key: value for key, value in component.items() if key != "title"}))

    def _value(self, key: str, value: Any) -> Any:
        return value if key in _VERBATIM else self.referring(value)

    def _reference(self, name: str, part: Json) -> Json:
        kinds = [part["type"]] if isinstance(part["type"], str) else [*part["type"]]
        (kind,) = (each for each in kinds if each != "null")
        shape = {key: value for key, value in part.items() if key not in _ABOUT} | {"type": kind}
        if "enum" in shape:
            shape["enum"] = [value for value in shape["enum"] if value is not None]
        shape = self.members_of(shape)
        assert self.found.setdefault(name, shape) == shape, f"two schemas are called {name}"
        about = {key: value for key, value in part.items() if key in _ABOUT}
        return ({"anyOf": [schema(name), {"type": "null"}]} if "null" in kinds else schema(name)) | about

    @staticmethod
    def _complete(part: Json) -> Json:
        kinds = part.get("type", ())
        if "integer" in kinds and "format" not in part:
            return part | _WHOLE_NUMBERS
        if "object" in kinds and not part.keys() & {"properties", "additionalProperties"}:
            return part | _ANYTHING
        return part
