"""Compares two JSON schemas, and lists their differences as changes for the compatibility modes.

Source: reference schemas#change-levels.

Two documents are walked side by side with a list of remaining pairs, so that no schema exhausts the stack; a pair
of references is followed once, and all of them together have a budget. The contract's table decides; what its original
overlooked is found as well (reference schemas#comparison): types that are stated or not, integers that become numbers,
patterns, formats and exclusive bounds that come or go, `not` and the other keywords that the table does not know, and
all changed attributes instead of the first one.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from jsonschema_rs.canonical.json import to_string

from rioni.domain.json_patch import escaped
from rioni.domain.schemas.change import Level, SchemaChange
from rioni.domain.schemas.keywords import (
    ATTRIBUTES,
    COMPOSITIONS,
    CONSTRAINS_NOTHING,
    SchemaSide,
    compositions,
    declared_types,
    enumerated_values,
    is_closed,
    kind_of,
    permitted_types,
    without,
)
from rioni.domain.schemas.walker import resolve


REFERENCED_BYTES_MAX = 2_000_000
"""How many bytes of schema are compared by following references. Honest schemas stay below a few times their size; two
reference cycles of different lengths, which fit into a schema of legal size, would make millions of pairs."""

PAIR_BYTES = 150
"""The bytes counted for each pair of references in addition to its size: it takes time however small it is."""

_PATH_CHARACTERS_MAX = 1000

_OVERLOOKED = ("pattern", "format", "exclusiveMaximum", "exclusiveMinimum", "contentEncoding", "contentMediaType")
_META = (
    ("id", "ID_CHANGED"),
    ("$id", "ID_CHANGED"),
    ("title", "TITLE_CHANGED"),
    ("description", "DESCRIPTION_CHANGED"),
)


def compare(original: str, submitted: str) -> list[SchemaChange]:
    """Every change from one JSON schema to another, in the order of the paths.

    Args:
        original: the text of a schema that `check_schema` has accepted.
        submitted: the text of another one.
    """
    comparison = _Comparison(SchemaSide(original), SchemaSide(submitted))
    return sorted(comparison.run(), key=lambda change: change.path)


class _Pair(NamedTuple):
    """Two schemas at the same location."""

    old: Any
    new: Any
    path: str
    is_event: bool = False
    """Whether this is the root: an object, even if the schema does not declare a type."""
    is_frozen: bool = False
    """Whether this is below `not` or `if`, where narrowing is widening: nothing but titles and the like may change."""
    is_alternative: bool = False
    """Whether this is below `oneOf`, where widening may narrow: a value must not match two members."""

    def at(self, *segments: str) -> str:
        """The pointer to something inside."""
        path = "/".join((self.path.removesuffix("/"), *map(escaped, segments)))
        return path if len(path) <= _PATH_CHARACTERS_MAX else f"#/…{path[-_PATH_CHARACTERS_MAX:]}"

    def inside(self, old: Any, new: Any, *segments: str) -> "_Pair":
        """The pair below this one."""
        return _Pair(old, new, self.at(*segments), is_frozen=self.is_frozen, is_alternative=self.is_alternative)


class _Comparison:
    """The walk through two documents."""

    def __init__(self, old: SchemaSide, new: SchemaSide) -> None:
        self.old, self.new = old, new
        self.changes: list[SchemaChange] = []
        self.todo = [_Pair(old.root, new.root, "#/", is_event=True)]
        self.followed: set[tuple[str, str, bool, bool]] = set()
        self.referenced_bytes = 0

    def run(self) -> list[SchemaChange]:
        """Walk all pairs; return the changes."""
        while self.todo:
            pair = self.todo.pop()
            pair = pair._replace(old=self.old.view(pair.old), new=self.new.view(pair.new))
            for keyword, kind in _META:
                if pair.old.get(keyword) != pair.new.get(keyword):
                    self._report(pair, kind, keyword)
            self._compare_integers(pair)
            self._compare(pair)
        return list(dict.fromkeys(self.changes))  # A reference to the root compares it a second time.

    def _report(self, pair: _Pair, kind: str, *segments: str) -> None:
        change = SchemaChange.of(kind, pair.at(*segments) if segments else pair.path)
        if pair.is_frozen and change.level_compatible > Level.PATCH:
            change = SchemaChange.of("ATTRIBUTE_VALUE_CHANGED", change.path)
        self.changes.append(change)

    def _compare_integers(self, pair: _Pair) -> None:
        """In draft 4 `1.0` is no integer, later it is."""
        was_in, is_in = self.old.has_integers_with_a_point, self.new.has_integers_with_a_point
        types = declared_types(pair.old), declared_types(pair.new)
        if was_in != is_in and all("integer" in each and "number" not in each for each in types):
            if was_in:
                self._report(pair, "TYPE_NARROWED")
            elif pair.is_frozen or pair.is_alternative:
                self._report(pair, "TYPE_CHANGED")

    # --- Comparison of kinds of schemas ---

    def _compare(self, pair: _Pair) -> None:
        old, new = kind_of(pair.old), kind_of(pair.new)
        if old != new and (old, new) != ("empty", "object"):
            self._report(pair, "TYPE_NARROWED" if old == "empty" else "TYPE_CHANGED")
        elif new == "reference":
            self._follow(pair)
        elif new in ("enum", "const"):
            self._compare_values(pair, new)
        elif compositions(pair.old) or compositions(pair.new):
            self._compare_combined(pair)
        else:
            self._compare_types(pair)
            self._compare_keywords(pair)

    def _follow(self, pair: _Pair) -> None:
        """Compare the definitions that two references name; differences are reported at the place of the definition."""
        old, new = pair.old["$ref"], pair.new["$ref"]
        followed = old, new, pair.is_frozen, pair.is_alternative
        if followed in self.followed or self.referenced_bytes > REFERENCED_BYTES_MAX:
            return
        self.followed.add(followed)
        before, after = resolve(self.old.root, old), resolve(self.new.root, new)
        self.referenced_bytes += PAIR_BYTES + len(msgspec.json.encode((before, after)))
        if self.referenced_bytes > REFERENCED_BYTES_MAX:
            self._report(pair, "NOT_COMPARABLE")
        else:
            self.todo.append(pair._replace(old=before, new=after, path=new if "/" in new else "#/", is_event=False))

    def _compare_values(self, pair: _Pair, keyword: str) -> None:
        """Compare enumerations by the values that the adjacent type permits; then compare the other keywords."""
        old, new = (enumerated_values(node, keyword) for node in (pair.old, pair.new))
        if old != new:
            self._report(pair, "ENUM_ARRAY_CHANGED", keyword)
        pair = pair._replace(old=without(pair.old, keyword), new=without(pair.new, keyword))
        if compositions(pair.old) or compositions(pair.new):
            self._compare_combined(pair)
        else:
            self._compare_keywords(pair)

    def _compare_combined(self, pair: _Pair) -> None:
        """Compare the members of compositions; the keywords next to them count as one member more."""
        methods = compositions(pair.new)
        rest = pair._replace(old=without(pair.old, *COMPOSITIONS), new=without(pair.new, *COMPOSITIONS))
        was_alone, is_alone = (kind_of(node) == "empty" for node in (rest.old, rest.new))
        was_closed, closed = (is_closed(node) for node in (pair.old, pair.new))
        if compositions(pair.old) != methods or was_alone != is_alone or was_closed != closed:
            self._report(pair, "COMPOSITION_METHOD_CHANGED")
            return
        for method in methods:
            before, after = pair.old[method], pair.new[method]
            if len(before) != len(after):
                self._report(pair, "SUB_SCHEMA_CHANGED", method)
                continue
            for index, member, counterpart in _matched(before, after):
                inside = pair.inside(member, counterpart, method, str(index))
                is_alternative = pair.is_alternative or method == "oneOf"
                self.todo.append(inside._replace(is_event=pair.is_event, is_alternative=is_alternative))
        self._compare(rest)

    def _compare_types(self, pair: _Pair) -> None:
        old, new = permitted_types(pair.old), permitted_types(pair.new)
        if old == new or (pair.is_event and "object" in old & new):
            return
        if (
            len(declared_types(pair.old)) != len(declared_types(pair.new))
            and declared_types(pair.old)
            and declared_types(pair.new)
        ):
            self._report(pair, "SUB_SCHEMA_CHANGED", "type")
        else:
            self._report(pair, "TYPE_NARROWED" if new < old else "TYPE_CHANGED")

    # --- Comparison of constraints ---

    def _compare_keywords(self, pair: _Pair) -> None:
        """Compare the keywords that constrain values of the permitted types."""
        types = permitted_types(pair.old) | permitted_types(pair.new)
        for group, keywords in ATTRIBUTES.items():
            if group in types or (group == "number" and "integer" in types):
                self._compare_attributes(pair, keywords)
        if "array" in types:
            self._compare_items(pair)
            self._compare_additional(pair, "additionalItems", "ADDITIONAL_ITEMS_CHANGED", "SCHEMA_REMOVED")
            self._compare_overlooked(pair, "contains")
        if "object" in types:
            self._compare_properties(pair)
            self._compare_dependencies(pair)
            self._compare_additional(
                pair, "additionalProperties", "ADDITIONAL_PROPERTIES_CHANGED", "ADDITIONAL_PROPERTIES_NARROWED"
            )
            self._compare_overlooked(pair, "propertyNames")
        for keyword in ("not", "if", "then", "else"):
            self._compare_overlooked(pair, keyword)

    def _compare_attributes(self, pair: _Pair, keywords: Sequence[str]) -> None:
        for keyword in keywords:
            default = CONSTRAINS_NOTHING.get(keyword)
            old, new = pair.old.get(keyword, default), pair.new.get(keyword, default)
            if to_string(old) != to_string(new):
                is_addition = old == default and keyword in _OVERLOOKED
                self._report(pair, "CONSTRAINT_ADDED" if is_addition else "ATTRIBUTE_VALUE_CHANGED", keyword)

    def _compare_overlooked(self, pair: _Pair, keyword: str, *name: str) -> None:
        """Compare sub-schemas that the contract's table does not know: adding one narrows."""
        old, new = (node.get(keyword) for node in (pair.old, pair.new))
        if name:
            old, new = (members.get(name[0]) if members else None for members in (old, new))
        if old is not None and new is not None:
            is_frozen = pair.is_frozen or keyword in ("not", "if")
            self.todo.append(pair.inside(old, new, keyword, *name)._replace(is_frozen=is_frozen))
        elif new is not None:
            self._report(pair, "CONSTRAINT_ADDED", keyword, *name)
        elif old is not None:
            self._report(pair, "SCHEMA_REMOVED", keyword, *name)

    def _compare_items(self, pair: _Pair) -> None:
        old, new = (node.get("items", []) for node in (pair.old, pair.new))
        old_tuple, new_tuple = (items if isinstance(items, list) else [] for items in (old, new))
        if (old is old_tuple) != (new is new_tuple):
            self._report(pair, "SCHEMA_REMOVED", "items")
        elif old is not old_tuple:
            self.todo.append(pair.inside(old, new, "items"))
        if len(old_tuple) != len(new_tuple):
            self._report(pair, "NUMBER_OF_ITEMS_CHANGED")
        else:
            for index, (member, counterpart) in enumerate(zip(old_tuple, new_tuple, strict=True)):
                self.todo.append(pair.inside(member, counterpart, "items", str(index)))

    def _compare_additional(self, pair: _Pair, keyword: str, changed: str, narrowed: str) -> None:
        """Compare the rules for undeclared members: anything (by default too), a schema, or nothing is permitted."""
        old, new = (
            True if kind_of(document.view(node.get(keyword))) == "empty" else node[keyword]
            for document, node in ((self.old, pair.old), (self.new, pair.new))
        )
        if (old is False) != (new is False):
            self._report(pair, changed, keyword)
        elif old is True and new is not True:
            self._report(pair, narrowed, keyword)
        elif new is True and old is not True:
            self._report(pair, "SCHEMA_REMOVED", keyword)
        elif isinstance(old, dict):
            self.todo.append(pair.inside(old, new, keyword))

    def _compare_properties(self, pair: _Pair) -> None:
        old, new = (node.get("properties", {}) for node in (pair.old, pair.new))
        for name, schema in old.items():
            if name in new:
                self.todo.append(pair.inside(schema, new[name], "properties", name))
            else:
                self._report(pair, "PROPERTY_REMOVED", "properties", name)
        if len(new) > len(old):
            self._report(pair, "PROPERTIES_ADDED", "properties")
        if "object" in permitted_types(pair.old) and is_closed(pair.new) and not is_closed(pair.old):
            # The old schema may have been about arrays only, so that any object was valid.
            self._report(pair, "ADDITIONAL_PROPERTIES_NARROWED")
        old, new = (node.get("patternProperties", {}) for node in (pair.old, pair.new))
        for pattern in {**old, **new}:
            self._compare_overlooked(pair, "patternProperties", pattern)
        required, wanted = (set(node.get("required", ())) for node in (pair.old, pair.new))
        if required != wanted:
            is_extension = required < wanted
            self._report(pair, "REQUIRED_ARRAY_EXTENDED" if is_extension else "REQUIRED_ARRAY_CHANGED", "required")

    def _compare_dependencies(self, pair: _Pair) -> None:
        old, new = (node.get("dependencies", {}) for node in (pair.old, pair.new))
        for name, before in old.items():
            after = new.get(name)
            if isinstance(before, list):
                if not isinstance(after, list) or set(before) != set(after):
                    self._report(pair, "DEPENDENCY_ARRAY_CHANGED", "dependencies", name)
            elif after is None or isinstance(after, list):
                self._report(pair, "DEPENDENCY_SCHEMA_REMOVED", "dependencies", name)
            else:
                self.todo.append(pair.inside(before, after, "dependencies", name))
        for name, after in new.items():
            if name not in old:
                is_array = isinstance(after, list)
                kind = "CONSTRAINT_ADDED" if is_array else "DEPENDENCY_SCHEMA_CHANGED"
                self._report(pair, kind, "dependencies", name)


def _matched(before: Sequence[Any], after: Sequence[Any]) -> Iterator[tuple[int, Any, Any]]:
    """Pair the members of two compositions: equal ones at any places, the others in their order."""
    waiting: dict[str, list[Any]] = {}
    for member in before:
        waiting.setdefault(to_string(member), []).append(member)
    changed = []
    for index, counterpart in enumerate(after):
        if equals := waiting.get(to_string(counterpart)):
            yield index, equals.pop(), counterpart
        else:
            changed.append((index, counterpart))
    left = [member for members in waiting.values() for member in members]
    for (index, counterpart), member in zip(changed, left, strict=True):
        yield index, member, counterpart
