"""Dotted paths such as `order.'first.item'.id`: their syntax, the value they lead to, and whether a schema declares it.

Sources: registry contract 3.1 (last paragraphs) and 6.5 (step 1).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jsonschema_rs import Draft4Validator

from rioni.domain.patterns import options_for
from rioni.domain.schema_graph import resolve


class MissingField(LookupError):
    """An event does not have the field; carries the segment of the path that is missing."""

    def __init__(self, segment: str) -> None:
        self.segment = segment
        super().__init__(f"field {segment} doesn't exist.")


class FieldPath(NamedTuple):
    """A parsed path."""

    segments: tuple[str, ...]

    def read(self, value: Any) -> Any:
        """The value at the end of the path; null is a value.

        Raises:
            MissingField: a segment leads nowhere.
        """
        for segment in self.segments:
            try:
                value = value[segment]
            except (KeyError, TypeError):  # TypeError: only objects can be asked for a name
                raise MissingField(segment) from None
        return value


def parse_path(text: str) -> FieldPath:
    """Parse a path: dots separate, single quotes protect dots, a backslash takes the next character as it is."""
    segments, segment, quoted = [], "", False
    characters = iter(text)
    for character in characters:
        if character == "\\":
            segment += next(characters, "")
        elif character == "'":
            quoted = not quoted
        elif character == "." and not quoted:
            segments.append(segment)
            segment = ""
        else:
            segment += character
    return FieldPath((*segments, segment))


def declares(schema: Mapping[str, Any], path: FieldPath) -> bool:
    """Whether a schema declares the path: each segment is a property of what the one before led to.

    Members of `properties` and matching `patternProperties` count, also behind a `$ref`. Of combined schemas `allOf`
    has to declare the rest of the path in all members, `anyOf` in at least one, `oneOf` in exactly one. An array ends
    a path.

    Args:
        schema: the root of an effective schema, which has passed the checks of `rioni.domain.schema`.
        path: relative to the event.
    """
    return _declares(schema, path.segments, schema)


_AGREE: Mapping[str, Callable[[list[bool]], bool]] = {
    "allOf": all,
    "anyOf": any,
    "oneOf": lambda found: sum(found) == 1,
}


def _declares(schema: Any, segments: tuple[str, ...], root: Mapping[str, Any]) -> bool:
    if not segments:
        return True
    if not isinstance(schema, Mapping):
        return False
    if isinstance(reference := schema.get("$ref"), str):
        return _declares(resolve(root, reference), segments, root)
    if any(_declares(child, segments[1:], root) for child in _properties(schema, segments[0])):
        return True
    return any(
        agree([_declares(member, segments, root) for member in schema[keyword]])
        for keyword, agree in _AGREE.items()
        if isinstance(schema.get(keyword), list)
    )


def _properties(schema: Mapping[str, Any], name: str) -> Iterator[Any]:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        yield properties[name]
    patterns = schema.get("patternProperties")
    if isinstance(patterns, Mapping):
        for pattern, child in patterns.items():
            if _matches(pattern, name):
                yield child


def _matches(pattern: str, name: str) -> bool:
    # Not `re`: the pattern is a stranger's, and has to be matched in linear time.
    return Draft4Validator({"pattern": pattern}, pattern_options=options_for(1)).is_valid(name)
