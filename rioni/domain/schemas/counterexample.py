"""Finds an event that one JSON schema accepts and its successor refuses, to illustrate why a change breaks things.

Events of the old schema are generated, at the bounds that the new one sets, and checked against both. The
set of all breaking events could be computed (`jsonschema_rs.canonicalize(old).subtract(new)`), but in no bounded time:
schemas of 60 bytes and 2 kB took 12 seconds, and no limit on size and branches kept it down. Here the steps are
counted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, zip_longest
from typing import Any

from rioni.domain.schemas.effective_schema import effective_schema
from rioni.domain.schemas.keywords import Node, speaks_of, without
from rioni.domain.schemas.patterns import PATTERNS
from rioni.domain.schemas.walker import expanded_paths, resolve


SCHEMA_CHARACTERS_MAX = 100_000
"""Beyond, compiling both schemas once more is not worth it."""
STEPS_MAX = 2_000
"""Schema objects that are visited in order to make events; large ones count for several."""
CANDIDATES_MAX = 64
"""Events that are checked."""
EXPANDED_PATHS_MAX = 2_000
"""Checking an event against schemas that expand to more would take too long (see `walker.expanded_paths`)."""

_DEPTH_MAX = 16
_VALUES_MAX = 16
_ITEMS_MAX = 20
_FULL_OBJECTS = 4
_CHARACTERS_MAX = 200
_MEMBERS_MAX = 50
_STEP_PROPERTIES = 20
_NOTHING = object()
_EMPTY: Mapping[str, Any] = {}
_ANYTHING: Sequence[Any] = ("text", {}, [], None, True, 0.5, *range(_ITEMS_MAX))
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
_EXAMPLES = {
    "date": "2024-01-02",
    "time": "03:04:05Z",
    "email": "a@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    # These formats have the names that the effective schema gives them.
    PATTERNS["date-time"]: "2024-01-02T03:04:05Z",
    PATTERNS["iso-4217"]: "EUR",
}


def breaking_example(
    original: str, submitted: str, *, original_mode: str = "forward", submitted_mode: str = "forward"
) -> dict[str, Any] | None:
    """An event that is valid by the original schema and rejected by the submitted one; None if none was found.

    Not finding one proves nothing.

    Args:
        original: the text of a schema that `check_schema` has accepted.
        submitted: the text of another one.
        original_mode: the compatibility mode, which decides whether objects are closed.
        submitted_mode: the same for the other one.
    """
    if len(original) + len(submitted) > SCHEMA_CHARACTERS_MAX:
        return None
    old, new = (
        effective_schema(text, name="", category="undefined", compatibility_mode=mode, cleanup_policy="delete")
        for text, mode in ((original, original_mode), (submitted, submitted_mode))
    )
    if any(expanded_paths(side.document, enough=EXPANDED_PATHS_MAX) > EXPANDED_PATHS_MAX for side in (old, new)):
        return None
    accepts, still_accepts = old.compile().is_valid, new.compile().is_valid
    for event in islice(_CounterexampleGenerator(old.document, new.document).events(), CANDIDATES_MAX):
        if accepts(event) and not still_accepts(event):
            return event
    return None


class _CounterexampleGenerator:
    """Generates values that may match one schema and not another; the caller validates them."""

    def __init__(self, old: Node, new: Node) -> None:
        self._old, self._new = old, new
        self._steps = STEPS_MAX
        self._equal: dict[tuple[int, int], bool] = {}
        self._inventions: Mapping[str, Callable[[Node, Node, int], Iterator[Any]]] = {
            "string": _strings,
            "integer": _integers,
            "number": _numbers,
            "boolean": lambda _old, _new, _depth: iter((True, False)),
            "null": lambda _old, _new, _depth: iter((None,)),
            "array": self._arrays,
            "object": self._objects,
        }

    def events(self) -> Iterator[dict[str, Any]]:
        """Objects that the schemas as a whole may be about."""
        objects = {"type": "object"}
        values = self._values({"allOf": [self._old, objects]}, {"allOf": [self._new, objects]}, _DEPTH_MAX)
        yield from (value for value in values if isinstance(value, dict))

    def _values(self, old: Any, new: Any, depth: int) -> Iterator[Any]:
        self._steps -= 1
        if self._steps < 0 or depth == 0 or old is False:
            return
        old, new = _whole(old, self._old), _whole(new, self._new)
        self._steps -= sum(len(node.get("properties", ())) for node in (old, new)) // _STEP_PROPERTIES
        if not old and not new:
            yield from _ANYTHING
            return
        for method in ("anyOf", "oneOf"):
            if method in old:
                rest, new_rest, counterparts = without(old, method), without(new, method), new.get(method, ())
                members = zip_longest(old[method], counterparts[: len(old[method])], fillvalue=_EMPTY)
                pairs = [({"allOf": [rest, member]}, {"allOf": [new_rest, other]}) for member, other in members]
                yield from _in_turn([self._values(*pair, depth - 1) for pair in pairs])
                return
        if "enum" in old:
            yield from old["enum"]
        elif "const" in old:
            yield old["const"]
        else:
            types = old.get("type", _TYPES)
            # Tries are limited: alternate, starting with values mentioned in a schema.
            names = [types] if isinstance(types, str) else types
            spoken_of = [name for name in names if speaks_of(old, name) or speaks_of(new, name)]
            for group in (spoken_of, [name for name in names if name not in spoken_of]):
                yield from _in_turn([self._inventions[name](old, new, depth) for name in group])

    def _are_equal(self, old: Any, new: Any) -> bool:
        pair = id(old), id(new)  # Parts of the documents, which live as long as this.
        if pair not in self._equal:
            self._equal[pair] = old == new
        return self._equal[pair]

    def _arrays(self, old: Node, new: Node, depth: int) -> Iterator[list[Any]]:
        items, new_items = old.get("items", {}), new.get("items", {})
        if isinstance(items, list):
            counterparts = [*(new_items if isinstance(new_items, list) else ()), *items]
            values = [next(self._values(*pair, depth - 1), None) for pair in zip(items, counterparts, strict=False)]
            yield values
            yield [*values, "text"]
            yield values[:1]
            return
        values = list(
            islice(self._values(items, {} if isinstance(new_items, list) else new_items, depth - 1), _ITEMS_MAX)
        )
        least = old.get("minItems", 0)
        repeated = min(max(1, least), _ITEMS_MAX)
        yield values[:1] * repeated
        for size in (least, new.get("minItems", 1) - 1, new.get("maxItems", _ITEMS_MAX) + 1, 2):
            if 0 <= size <= _ITEMS_MAX:
                yield values[:size]
                yield values[:1] * size
        for value in values[1:]:
            yield [value] * repeated

    def _objects(self, old: Node, new: Node, depth: int) -> Iterator[dict[str, Any]]:
        properties, counterparts = old.get("properties", {}), new.get("properties", {})
        others, new_others = (node.get("additionalProperties", {}) for node in (old, new))

        def values(name: str) -> Iterator[Any]:
            pair = properties.get(name, others), counterparts.get(name, new_others)
            return islice(self._values(*pair, depth - 1), _VALUES_MAX)

        least: dict[str, Any] = {}
        for name in old.get("required", ()):
            if (first := next(values(name), _NOTHING)) is _NOTHING:
                return
            least[name] = first
        yield least
        if "maxProperties" in new:
            yield from self._full_objects(properties, values, least)
        # Properties that differ come first, as the number of tries is limited.
        for name in sorted(properties, key=lambda name: self._are_equal(properties[name], counterparts.get(name))):
            brought = {other: value for other in _dependents(old, name) for value in islice(values(other), 1)}
            for value in values(name):
                yield {**least, **brought, name: value}
        if others is not False:
            yield {**least, "undeclared": next(values("undeclared"), None)}
        yield from self._full_objects(properties, values, least)

    def _full_objects(
        self, properties: Node, values: Callable[[str], Iterator[Any]], least: Mapping[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Objects with all properties: with the first value of each, with the second, and so on."""
        members = {name: list(islice(values(name), _FULL_OBJECTS)) for name in islice(properties, _ITEMS_MAX)}
        for index in range(_FULL_OBJECTS):
            yield {**{name: found[index] for name, found in members.items() if index < len(found)}, **least}


def _integers(old: Node, new: Node, _depth: int) -> Iterator[float]:
    yield from (int(value) for value in _bounds(old, new))
    yield 1.0  # In draft 4 that is no integer.


def _numbers(old: Node, new: Node, _depth: int) -> Iterator[float]:
    if isinstance(factor := new.get("multipleOf"), int | float):
        yield factor / 2
    for value in _bounds(old, new):
        yield from (value, value + 0.5)


def _bounds(old: Node, new: Node) -> Iterator[float]:
    bounds = [
        value + offset
        for node in (old, new)
        for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        if isinstance(value := node.get(keyword), int | float) and not isinstance(value, bool)
        for offset in (0, -1, 1)
    ]
    yield from (value for value in (*bounds, 0, 1) if abs(value) < 2**53)


def _strings(old: Node, new: Node, _depth: int) -> Iterator[str]:
    for keyword in ("format", "pattern"):
        if isinstance(text := old.get(keyword), str):
            yield _EXAMPLES.get(text, text.removeprefix("^").removesuffix("$"))
    yield "text"
    for size in (new.get("maxLength", 0) + 1, new.get("minLength", 1) - 1, old.get("minLength", 0)):
        if 0 <= size <= _CHARACTERS_MAX:
            yield "x" * size
    yield from ("", "0", "A")


def _dependents(node: Node, name: str) -> Sequence[str]:
    """The properties that have to be there if this one is."""
    dependents = node.get("dependencies", {}).get(name)
    if isinstance(dependents, dict):
        dependents = dependents.get("required")
    return dependents if isinstance(dependents, list) else ()


def _in_turn(sources: Sequence[Iterator[Any]]) -> Iterator[Any]:
    """One of each, then the next one of each, until all have ended."""
    for row in zip_longest(*sources, fillvalue=_NOTHING):
        yield from (value for value in row if value is not _NOTHING)


# --- One schema object, merged from those joined by references and `allOf` ---


def _whole(schema: Any, root: Node) -> Node:
    """Merge the schemas that apply to a value, up to `_MEMBERS_MAX`; of most repeated keywords the first counts."""
    todo = [schema]
    members: list[Node] = []
    while todo and len(members) < _MEMBERS_MAX:
        node = todo.pop()
        if isinstance(node, dict):
            if isinstance(reference := node.get("$ref"), str):
                todo.append(resolve(root, reference))
            else:
                members.append(node)
                todo.extend(node.get("allOf", ()))
    return _merged(members)


def _merged(members: Sequence[Node]) -> Node:
    whole: dict[str, Any] = {}
    for node in members:
        for keyword, value in node.items():
            if keyword == "properties":
                whole[keyword] = {**value, **whole.get(keyword, {})}
            elif keyword == "required":
                whole[keyword] = [*whole.get(keyword, ()), *value]
            elif keyword != "allOf":
                whole.setdefault(keyword, value)
    return whole
