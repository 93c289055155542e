"""Finds out whether a schema declares a path, excludes it or leaves it open, and the types of its values.

For paths that people write: in filters, columns and templates (reference schemas#paths).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from jsonschema_rs.canonical.json import to_string

from rioni.domain.schemas.effective_schema import DRAFT_NUMBERS, EffectiveSchema
from rioni.domain.schemas.field_path import NameMatcher, TooMuchToLookFor
from rioni.domain.schemas.keywords import KEYWORDS_SINCE, TYPES, type_of
from rioni.domain.schemas.walker import resolve


class Item(Enum):
    """A segment of a path that matches any item of an array."""

    ANY = "[]"


ANY_ITEM: Final = Item.ANY
Segment: TypeAlias = str | int | Item
DEPTH_MAX = 200
"""How many schemas may be inside each other, references followed."""


class Standing(Enum):
    """How a schema treats a path."""

    DECLARED = "declared"
    UNDECLARED = "undeclared"
    """Nothing forbids it, and nothing names it: events may have it by chance."""
    EXCLUDED = "excluded"
    """No valid event has it."""


class PathFound(NamedTuple):
    """How a schema treats a path, with the values that it allows there."""

    types: frozenset[str]
    """The types that values at the path may have, of `TYPES`; none if the path is excluded."""
    is_declared: bool
    names: frozenset[str] = frozenset()
    """The names declared at the place of the first undeclared or excluded segment, for proposals."""
    values: frozenset[str] | None = None
    """The values that there may be, as canonical JSON; None if they are not enumerated."""

    @property
    def standing(self) -> Standing:
        """The three cases."""
        if not self.types:
            return Standing.EXCLUDED
        return Standing.DECLARED if self.is_declared else Standing.UNDECLARED


_NOTHING = PathFound(frozenset(), is_declared=False)
_ANYTHING = PathFound(TYPES, is_declared=False)
ENRICHED_MEMBERS = ("published_by", "received_at", "event_type", "flow_id", "partition", "version")
"""The members of the metadata that the broker writes."""


def path_in(schema: EffectiveSchema, path: Sequence[Segment]) -> PathFound:
    """Look up a path in the schema of the events that consumers get, with the members that the broker adds.

    Args:
        schema: the effective schema of the event type.
        path: from the root of the event: names of members, indexes of items, or `ANY_ITEM`.

    Raises:
        TooMuchToLookFor: the schema is too entangled.
    """
    if schema.has_metadata and path[:1] == ("metadata",) and path[1:2] and path[1] in ENRICHED_MEMBERS:
        return PathFound(frozenset(("string",)), is_declared=True) if len(path) == 2 else _NOTHING  # noqa: PLR2004
    return _Search(schema, tuple(path)).at(schema.document, 0, 0)


class _Search:
    """Follows one path through a schema."""

    def __init__(self, schema: EffectiveSchema, path: tuple[Segment, ...]) -> None:
        self._root, self._path = schema.document, path
        number = DRAFT_NUMBERS[schema.draft]
        self._ignored = frozenset(keyword for keyword, draft in KEYWORDS_SINCE.items() if draft > number)
        self._matcher = NameMatcher()
        self._found: dict[tuple[int, int], PathFound] = {}

    def at(self, node: Any, done: int, depth: int) -> PathFound:
        """Look up the rest of the path in a schema; `done` is the number of segments followed so far."""
        while isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
            self._matcher.search(1)
            node = resolve(self._root, reference)
        if node is False:
            return _NOTHING
        if not isinstance(node, Mapping):
            return PathFound(TYPES, is_declared=done == len(self._path))
        if (id(node), done) not in self._found:
            if depth > DEPTH_MAX:
                raise TooMuchToLookFor
            self._matcher.search(1)
            self._found[id(node), done] = self._all_of(node, done, depth + 1)
        return self._found[id(node), done]

    def _all_of(self, node: Mapping[str, Any], done: int, depth: int) -> PathFound:
        node = {keyword: value for keyword, value in node.items() if keyword not in self._ignored}
        found = self._own(node, done, depth)
        for member in node.get("allOf", ()):
            found = _both(found, self.at(member, done, depth))
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                found = _both(found, _either(self.at(member, done, depth) for member in node[keyword]))
        if "if" in node:
            branches = [self.at(node.get(keyword, True), done, depth) for keyword in ("then", "else")]
            found = _both(found, _either(branches))
        return found

    def _own(self, node: Mapping[str, Any], done: int, depth: int) -> PathFound:
        """Look up the rest of the path in a schema object, by its keywords other than combining ones."""
        rest = self._path[done:]
        types = _types(node)
        if not rest:
            found = PathFound(types, is_declared=True)
            for values in _enumerated(node):
                found = _both(found, PathFound(types, is_declared=True, values=frozenset(map(to_string, values))))
            return found
        if node.get("not") in ({}, True) or (isinstance(rest[0], str) and node.get("not") == {"required": [rest[0]]}):
            return _NOTHING
        found = _ANYTHING
        if isinstance(rest[0], str):
            found = self._member(node, rest[0], done, depth) if "object" in types else _NOTHING
        else:
            found = self._item(node, rest[0], done, depth) if "array" in types else _NOTHING
        for values in _enumerated(node):
            reached = frozenset(type_of(value) for each in values for value in _values_at(each, rest))
            found = _both(found, PathFound(reached, is_declared=bool(reached)))
        return found

    def _member(self, node: Mapping[str, Any], name: str, done: int, depth: int) -> PathFound:
        properties = node.get("properties", {})
        if node.get("maxProperties") == 0 or not self._may_be_named(node.get("propertyNames", True), name):
            return _NOTHING
        children = [properties[name]] if name in properties else []
        patterns = node.get("patternProperties", {})
        self._matcher.search(len(patterns))
        children += [child for pattern, child in patterns.items() if self._matcher.is_match(pattern, name)]
        if not children:
            child = node.get("additionalProperties", True)
            if child in (True, {}):
                return _ANYTHING._replace(names=frozenset(properties))
            found = self.at(child, done + 1, depth)
            return found if child else found._replace(names=frozenset(properties))
        found = self.at(children[0], done + 1, depth)
        for child in children[1:]:
            found = _both(found, self.at(child, done + 1, depth))
        return found

    def _may_be_named(self, names: Any, name: str) -> bool:
        if not isinstance(names, Mapping):
            return names is not False
        if isinstance(pattern := names.get("pattern"), str) and not self._matcher.is_match(pattern, name):
            return False
        return all(name in values for values in _enumerated(names))

    def _item(self, node: Mapping[str, Any], index: int | Item, done: int, depth: int) -> PathFound:
        items, additional = node.get("items", True), node.get("additionalItems", True)
        limit = node.get("maxItems")
        if limit is not None and (0 if index is ANY_ITEM else index) >= limit:
            return _NOTHING
        if not isinstance(items, list):
            return self.at(items, done + 1, depth) if items not in (True, {}) else _ANYTHING
        if index is ANY_ITEM:
            return _either(self.at(item, done + 1, depth) for item in (*items, additional))
        child = items[index] if index < len(items) else additional
        return self.at(child, done + 1, depth)


def _both(left: PathFound, right: PathFound) -> PathFound:
    known = [each.values for each in (left, right) if each.values is not None]
    return PathFound(
        left.types & right.types,
        left.is_declared or right.is_declared,
        left.names | right.names,
        frozenset.intersection(*known) if known else None,
    )


def _either(found: Iterable[PathFound]) -> PathFound:
    types: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    values: frozenset[str] | None = frozenset()
    is_declared = False
    for each in found:
        types, names, is_declared = types | each.types, names | each.names, is_declared or each.is_declared
        if each.types:
            values = None if values is None or each.values is None else values | each.values
    return PathFound(types, is_declared, names, values)


def _types(node: Mapping[str, Any]) -> frozenset[str]:
    declared = node.get("type", TYPES)
    types = frozenset((declared,) if isinstance(declared, str) else declared)
    if "number" in types:
        types |= {"integer"}
    if isinstance(node.get("not"), Mapping) and node["not"].keys() == {"type"}:
        types -= _types(node["not"])
    for values in _enumerated(node):
        types &= frozenset(type_of(value) for value in values)
    return types


def _enumerated(node: Mapping[str, Any]) -> Iterable[Sequence[Any]]:
    if isinstance(values := node.get("enum"), list):
        yield values
    if "const" in node:
        yield (node["const"],)


def _values_at(value: Any, path: Sequence[Segment]) -> Sequence[Any]:
    values = [value]
    for segment in path:
        if isinstance(segment, str):
            values = [each[segment] for each in values if isinstance(each, dict) and segment in each]
        elif segment is ANY_ITEM:
            values = [item for each in values if isinstance(each, list) for item in each]
        else:
            values = [each[segment] for each in values if isinstance(each, list) and segment < len(each)]
    return values
