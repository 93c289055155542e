"""Dotted paths such as `order.'first.item'.id`: parsing, evaluation, and a check that a schema declares them.

Sources: reference event-types#fields and 6.5 (step 1).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jsonschema_rs import Draft4Validator

from rioni.domain.limits import PATH_SEGMENTS_MAX
from rioni.domain.schemas.patterns import STATE_NS, options_for, program_bytes
from rioni.domain.schemas.walker import resolve


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
            MissingField: the event lacks a segment.
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


class TooMuchToLookFor(ValueError):
    """Searching a schema for paths would take too long."""


LOOKS_MAX = 200_000
"""Maximum number of visits of schema objects for all paths of a definition, by rest of a path. PERF: 0.7 s."""
MATCH_NS_MAX = 20_000_000
"""Time limit of matching one name with one pattern, which blocks the process."""
NS_PER_LOOK = 3_500


class NameMatcher:
    """Matches names of members with the patterns of a schema, with a limit for all comparisons."""

    def __init__(self) -> None:
        self._looks_left = LOOKS_MAX
        self._patterns: dict[str, tuple[Draft4Validator, int]] = {}
        self._matches: dict[tuple[str, str], bool] = {}

    def is_match(self, pattern: str, name: str) -> bool:
        """Whether a name matches a pattern; raises TooMuchToLookFor."""
        if (pattern, name) not in self._matches:
            if pattern not in self._patterns:
                # Not `re`: the pattern is untrusted, and has to be matched in linear time.
                validator = Draft4Validator({"pattern": pattern}, pattern_options=options_for(1))
                self._patterns[pattern] = validator, program_bytes(pattern)
            validator, size = self._patterns[pattern]
            worst_ns = round(len(name.encode(errors="surrogatepass")) * size * STATE_NS)
            if worst_ns > MATCH_NS_MAX:
                raise TooMuchToLookFor
            self.search(worst_ns // NS_PER_LOOK)
            self._matches[pattern, name] = validator.is_valid(name)
        return self._matches[pattern, name]

    def search(self, looks: int) -> None:
        """Count comparisons; raises TooMuchToLookFor."""
        self._looks_left -= looks
        if self._looks_left < 0:
            raise TooMuchToLookFor


class DeclaredPaths:
    """Finds out which paths a schema declares; used for the paths of one definition, with a bound for all of them.

    Schema objects may be used in many places: with references that double fifteen times, thirty of them
    expand to a million. So results are memoised by schema object and rest of the path.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Keep the schema.

        Args:
            schema: the root of an effective schema that passed the checks of `rioni.domain.schemas.checks`.
        """
        self._root = schema
        self._matcher = NameMatcher()

    def declares(self, path: FieldPath) -> bool:
        """Whether the schema declares a path: each segment is a property of the object at the previous one.

        Members of `properties` and matching `patternProperties` count, also through a `$ref`. In combined schemas,
        `allOf` has to declare the rest of the path in all members, `anyOf` in at least one, `oneOf` in exactly one. An
        array ends a path.

        Args:
            path: relative to the event. A path longer than the maximum depth of events is not declared.

        Raises:
            TooMuchToLookFor: the limit for all paths is exceeded.
        """
        segments = path.segments
        if len(segments) > PATH_SEGMENTS_MAX:
            return False
        found: dict[tuple[int, int], bool] = {}
        # Nodes with their number of followed segments; without recursion, as chains of references may be thousands
        # long.
        stack: list[tuple[Any, int]] = [(self._root, 0)]
        while stack:
            node, done = stack[-1]
            key = id(node), done
            if key in found or done == len(segments) or not isinstance(node, Mapping):
                found.setdefault(key, done == len(segments))
                stack.pop()
                continue
            parts = self._parts(node, segments, done)
            if left := [child for _, children in parts for child in children if (id(child[0]), child[1]) not in found]:
                stack.extend(left)
            else:
                found[key] = any(agree([found[id(child), at] for child, at in children]) for agree, children in parts)
                stack.pop()
        return found[id(self._root), 0]

    def _parts(self, node: Mapping[str, Any], segments: tuple[str, ...], done: int) -> "_Parts":
        """The conditions for a schema object to declare a path, in terms of its children and the rest of the path."""
        if isinstance(reference := node.get("$ref"), str):
            parts: _Parts = [(any, [(resolve(self._root, reference), done)])]
        else:
            parts = [(any, [(child, done + 1) for child in self._properties(node, segments[done])])]
            parts += [
                (agree, [(member, done) for member in node[keyword]])
                for keyword, agree in _AGREE.items()
                if isinstance(node.get(keyword), list)
            ]
        self._matcher.search(1 + sum(len(children) for _, children in parts))
        return parts

    def _properties(self, schema: Mapping[str, Any], name: str) -> Iterator[Any]:
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            yield properties[name]
        patterns = schema.get("patternProperties")
        if isinstance(patterns, Mapping):
            self._matcher.search(len(patterns))
            yield from (child for pattern, child in patterns.items() if self._matcher.is_match(pattern, name))


_Agree = Callable[[list[bool]], bool]
_Parts = list[tuple[_Agree, list[tuple[Any, int]]]]
_AGREE: Mapping[str, _Agree] = {
    "allOf": all,
    "anyOf": any,
    "oneOf": lambda found: sum(found) == 1,
}
