"""Walks the schema objects of a JSON schema: their locations, references and validation cost.

The schema is untrusted: it may be of any shape, recursive, or crafted to be expensive.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from rioni.domain.json_patch import unescaped
from rioni.domain.schemas import strict_json


LEVELS = 64
"""How deep an event may be nested, and with it the part of a recursive schema that matters."""

STEPS_MAX = 20_000
"""How many steps combined schemas may have together, each one counting those of its members as its own."""

ENUMERATED_WEIGHT = 12
UNIQUE_WEIGHT = 7

# Keywords by the shape of their value, with the step that they make: see `Edge`.
_STEPS = {
    "not": "",
    "if": "",
    "then": "",
    "else": "",
    "additionalProperties": ".",
    "propertyNames": ".",
    "items": "[",
    "additionalItems": "[",
    "contains": "[",
}
_LISTS = {"allOf": "", "anyOf": "", "oneOf": "", "items": "[{}"}
_MAPS = {"dependencies": "", "properties": ".{}", "patternProperties": "."}
_DEFINITIONS = ("definitions", "$defs")


class Edge(NamedTuple):
    """How one schema object uses another one."""

    step: str
    """The part of a value to which the target applies: `""` the same value, `.name` a property, `.` any property, `[0`
    an item, `[` any item."""
    path: tuple[str, ...]
    """The path from this schema object to the target; empty for a reference."""
    target: dict[str, Any]


_Uses = list[tuple[str, int]]
"""The steps and the ids of the targets of a schema object's edges."""


class Pointer(NamedTuple):
    """The location of a schema object, written out only on demand.

    PERF: 9,000 schema objects below 30 names of 3,000 characters, 170 kB in all, have 800 MB of pointers.
    """

    base: "Pointer | None"
    text: str
    characters: int

    @classmethod
    def to(cls, text: str) -> "Pointer":
        """A pointer that stands by itself."""
        return cls(None, text, len(text))

    def below(self, *segments: str) -> "Pointer":
        """The pointer to something inside."""
        text = "/".join(segments)
        return Pointer(self, text, self.characters + 1 + len(text))

    def __str__(self) -> str:
        parts = []
        pointer: Pointer | None = self
        while pointer is not None:
            parts.append(pointer.text)
            pointer = pointer.base
        return "/".join(reversed(parts))


class SchemaCycle(ValueError):
    """References lead back to a schema object without consuming a part of the value."""


def resolve(root: Any, reference: str) -> Any:
    """The part of a schema that a local reference such as `#/definitions/a~1b` points to.

    Raises:
        LookupError: there is no such part.
    """
    node = root
    if reference in ("#", ""):
        return node
    if not reference.startswith("#/"):
        raise LookupError(reference)
    for segment in unquote(reference[2:]).split("/"):
        key = unescaped(segment)
        if isinstance(node, list) and re.fullmatch(r"0|[1-9][0-9]{0,6}", key) and int(key) < len(node):
            node = node[int(key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            raise LookupError(reference)
    return node


def edges(node: Mapping[str, Any], root: Any) -> Iterator[Edge]:
    """How a schema object uses others; next to `$ref` other keywords mean nothing.

    Raises:
        LookupError: a reference points nowhere.
    """
    if isinstance(reference := node.get("$ref"), str):
        if isinstance(target := resolve(root, reference), dict):
            yield Edge("", (), target)
        return
    for keyword, value in node.items():
        step = _STEPS.get(keyword)
        if step is not None and isinstance(value, dict):
            yield Edge(step, (keyword,), value)
        elif keyword in _LISTS and isinstance(value, list):
            for index, member in enumerate(value):
                if isinstance(member, dict):
                    yield Edge(_LISTS[keyword].format(index), (keyword, str(index)), member)
        elif keyword in _MAPS:
            for name, member in _members(value):
                yield Edge(_MAPS[keyword].format(name), (keyword, name), member)


def _members(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schema objects among the members of an object."""
    if isinstance(value, dict):
        yield from ((name, member) for name, member in value.items() if isinstance(member, dict))


def walk(root: dict[str, Any]) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """All schema objects, each once, with a pointer such as `#/properties/a`; definitions too, whether used or not.

    Yields:
        an object before those that it uses. A consumer may read it, but must not change it before the end.

    Raises:
        LookupError: a reference points nowhere.
    """
    seen = {id(root)}
    stack = [(Pointer.to("#"), root)]
    while stack:
        pointer, node = stack.pop()
        yield pointer, node
        found = [
            (pointer.below(*edge.path) if edge.path else Pointer.to(str(node.get("$ref"))), edge.target)
            for edge in edges(node, root)
        ]
        for keyword in _DEFINITIONS:
            found += [(pointer.below(keyword, name), member) for name, member in _members(node.get(keyword))]
        for where, target in reversed(found):
            if id(target) not in seen:
                seen.add(id(target))
                stack.append((where, target))


def reachable(start: Iterable[dict[str, Any]], root: dict[str, Any]) -> set[int]:
    """The ids of the schema objects that some of them use, directly or not, themselves included."""
    stack = list(start)
    seen = set(map(id, stack))
    while stack:
        for edge in edges(stack.pop(), root):
            if id(edge.target) not in seen:
                seen.add(id(edge.target))
                stack.append(edge.target)
    return seen


def expanded_paths(root: dict[str, Any], *, enough: int) -> int:
    """The maximum number of applications of schema objects on a path from the root of a value to one of its leaves.

    Each use of a schema object counts for itself, so doubling by `$ref` shows as the power of two that it is, and is
    counted without being done. The time that this takes is bounded by `STEPS_MAX`, for each of `LEVELS` levels.

    Args:
        root: a schema whose references can be resolved.
        enough: counting ends beyond this number, with some larger one; so it does if it takes too long.

    Raises:
        SchemaCycle: a value would be checked for ever.
    """
    uses = {id(node): [(edge.step, id(edge.target)) for edge in edges(node, root)] for _, node in walk(root)}
    weight = {id(node): _weight(node) for _, node in walk(root)}
    apart = {node: [target for _, target in used] for node, used in uses.items() if _apart(used)}
    order = _in_place_order(uses)
    cost = dict.fromkeys(order, 1)
    for _ in range(LEVELS):
        deeper = _one_level_deeper(uses, apart, order, cost, weight)
        if deeper is None:
            return enough + 1
        if deeper == cost or deeper[id(root)] > enough:
            return deeper[id(root)]
        cost = deeper
    return cost[id(root)]


def _one_level_deeper(
    uses: Mapping[int, _Uses],
    apart: Mapping[int, list[int]],
    order: list[int],
    cost: Mapping[int, int],
    weight: Mapping[int, int],
) -> dict[int, int] | None:
    """The cost of each schema object for values one level deeper than those of `cost`; None if it takes too long."""
    here: dict[int, int] = {}
    below: dict[int, dict[str, int]] = {}
    deeper: dict[int, int] = {}
    taken = 0
    for node in order:
        if node in apart:  # PERF: most schema objects are like this
            here[node] = weight[node]
            deeper[node] = weight[node] + max(map(cost.__getitem__, apart[node]), default=0)
            continue
        for step, target in uses[node]:
            if step == "" and target not in below:
                below[target] = {inner: cost[leaf] for inner, leaf in uses[target]}
        if _is_reference(uses[node]):  # PERF: a large object that many refer to is not copied
            (_, target), *_ = uses[node]
            here[node], below[node], deeper[node] = 1 + here[target], below[target], 1 + deeper[target]
            continue
        here[node] = weight[node]
        steps: dict[str, int] = {}
        for step, target in uses[node]:
            here[node] += 0 if step else here[target]
            further = {step: cost[target]} if step else below[target]
            for inner, amount in further.items():
                steps[inner] = steps.get(inner, 0) + amount
            taken += len(further)
        if taken > STEPS_MAX:
            return None
        below[node] = steps
        deeper[node] = here[node] + _greatest(steps)
    return deeper


def _weight(node: Mapping[str, Any]) -> int:
    """How many ordinary schema objects one counts for.

    PERF: comparing with an enumerated object takes twelve times as long as a schema object for each value in it, a look
    for duplicates seven times as long for each item.
    """
    if isinstance(node.get("$ref"), str):
        return 1
    weight = UNIQUE_WEIGHT if node.get("uniqueItems") is True else 1
    values = node.get("enum")
    if isinstance(values, list) and any(isinstance(value, dict | list) for value in values):
        stack = list(values)
        while stack:
            weight += ENUMERATED_WEIGHT
            if isinstance(value := stack.pop(), dict | list):
                stack.extend(strict_json.children(value))
    return weight


def _apart(uses: _Uses) -> bool:
    """Whether a schema object only applies others to different parts of a value."""
    steps = {step for step, _ in uses}
    return len(steps) == len(uses) and steps.isdisjoint(("", ".", "["))


def _is_reference(uses: _Uses) -> bool:
    """Whether a schema object applies one other to the same value, and nothing else."""
    return len(uses) == 1 and uses[0][0] == ""


def _greatest(steps: Mapping[str, int]) -> int:
    """The cost of the costliest property or item: schemas for all of them, and those for this one."""
    named = {".": 0, "[": 0}
    for step, amount in steps.items():
        if len(step) > 1 and amount > named[step[0]]:
            named[step[0]] = amount
    return max(amount + steps.get(kind, 0) for kind, amount in named.items())


def _in_place_order(uses: Mapping[int, _Uses]) -> list[int]:
    """All schema objects, each after those that it applies to the same value."""
    order: list[int] = []
    entered: set[int] = set()
    done: set[int] = set()
    for start in uses:
        stack = [start]
        while stack:
            node = stack[-1]
            if node in entered:
                stack.pop()
                if node not in done:
                    done.add(node)
                    order.append(node)
                continue
            entered.add(node)
            for step, target in uses[node]:
                if step == "" and target not in done:
                    if target in entered:
                        raise SchemaCycle
                    stack.append(target)
    return order
