"""Bounds the cost of validating an event, so that no event blocks other requests.

Validation runs in one call into the library, during which nothing else happens in this process. Two things multiply:
the schemas that apply to each value, and the states of a regular expression for each character (see `patterns`). What
is bounded is the product.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rioni.domain.schemas.checks import EXPANDED_PATHS_MAX
from rioni.domain.schemas.effective_schema import EffectiveSchema, Schema
from rioni.domain.schemas.patterns import MESSAGES, STATE_NS, UUID, compiled_bytes, program_bytes
from rioni.domain.schemas.strict_json import children
from rioni.domain.schemas.walker import edges, expanded_paths, walk


PORTION_NS_MAX = 20_000_000
"""The maximum time of one call into the library."""
EVENT_NS_MAX = 40_000_000
"""The maximum time of validating one event, which can't be divided."""
PATH_NS = 6
"""PERF: a schema applied to a value takes 5 to 6 ns."""
BYTES_PER_VALUE_MIN = 2
"""A digit and a comma."""


class ValidationCost:
    """The bounds for one schema."""

    def __init__(self, schema: EffectiveSchema) -> None:
        """Measure a schema that `check_schema` has accepted."""
        self._schema = schema
        self.paths = expanded_paths(schema.document, enough=EXPANDED_PATHS_MAX)
        """How many schemas apply to one value at most."""
        nodes = [node for _, node in walk(schema.document)]
        values = {node["pattern"] for node in nodes if isinstance(node.get("pattern"), str)}
        names = {name for node in nodes for name in node.get("patternProperties", ())}
        self._costs = {pattern: program_bytes(pattern) for pattern in (values | names) - _CHEAP}
        self._names_bytes = sum(self._costs.get(name, 0) for name in names)
        ns_per_byte = self.paths * PATH_NS / BYTES_PER_VALUE_MIN + sum(self._costs.values()) * STATE_NS
        self.portion_bytes = round(PORTION_NS_MAX / ns_per_byte)
        """Events of this size together can't take too long in any case."""
        self._meter: _CostMeter | None = None

    @property
    def patterns_bytes(self) -> int:
        """An estimate of the memory that the compiled patterns take."""
        return compiled_bytes(len(self._costs), sum(self._costs.values()))

    def portions(self, sizes: Sequence[int]) -> Iterator[slice]:
        """Divide a batch, whose events have these sizes in bytes, into parts that don't take too long each."""
        if sum(sizes) <= self.portion_bytes:
            yield slice(0, len(sizes))
            return
        start = total = 0
        for index, size in enumerate(sizes):
            if total + size > self.portion_bytes and index > start:
                yield slice(start, index)
                start, total = index, 0
            total += size
        yield slice(start, len(sizes))

    def is_too_much(self, event: Mapping[str, Any]) -> bool:
        """Whether one event that is larger than `portion_bytes` would take too long."""
        count, name_characters = size_of(event)
        cost = count * self.paths * PATH_NS + name_characters * self._names_bytes * STATE_NS
        if cost > EVENT_NS_MAX:
            return True
        if not self._costs:
            return False
        self._meter = self._meter or _CostMeter(self._schema, self._costs)
        return cost + self._meter.characters_times_bytes(event) * STATE_NS > EVENT_NS_MAX


class _CostMeter:
    """Adds up how much text of an event may meet which expressions, without running them.

    Nothing fails but the count, so that all is counted: the library skips parts in an unspecified order, and skips
    nothing if all violations are asked for.
    """

    def __init__(self, schema: EffectiveSchema, costs: Mapping[str, int]) -> None:
        self._total = 0
        document = _Applied(schema.document, costs).document()
        formats = {_program(size): self._counter(size) for size in set(costs.values())}
        self._validator = schema.draft(document, offline=True, validate_formats=True, formats=formats)

    def characters_times_bytes(self, event: Mapping[str, Any]) -> int:
        self._total = 0
        self._validator.is_valid(event)
        return self._total

    def _counter(self, size: int) -> Any:
        def count(text: str) -> bool:
            # A call by itself takes as long as a character.
            self._total += (len(text) + 1) * size
            return self._total * STATE_NS <= EVENT_NS_MAX

        return count


class _Applied:
    """Writes a schema that applies all that another one may apply to a value, and asserts nothing but programs."""

    def __init__(self, root: Schema, costs: Mapping[str, int]) -> None:
        self._root, self._costs = root, costs
        targets = [edge.target for _, node in walk(root) for edge in edges(node, root) if not edge.path]
        self._names = {id(target): f"d{number}" for number, target in enumerate(targets)}
        self._targets = {id(target): target for target in targets}

    def document(self) -> Schema:
        definitions = {self._names[key]: self._written(target) for key, target in self._targets.items()}
        return {"definitions": definitions, "allOf": [self._used(self._root)]}

    def _used(self, node: Schema) -> Schema:
        """A schema object as another one uses it: each target of references is written once."""
        name = self._names.get(id(node))
        return self._written(node) if name is None else {"$ref": f"#/definitions/{name}"}

    def _written(self, node: Schema) -> Schema:
        found = _places(node)
        every: list[Schema] = []
        pattern = node.get("pattern")
        if isinstance(pattern, str) and pattern in self._costs and not _is_reference(node):
            every.append({"format": _program(self._costs[pattern])})
        for edge in edges(node, self._root):
            used = self._used(edge.target)
            match edge.path:
                case ("properties" | "patternProperties" as keyword, name):
                    found[keyword][name] = used
                case ("items", index):
                    found["items"][int(index)] = used
                case ("additionalProperties" | "propertyNames" | "items" | "additionalItems" as keyword,):
                    found[keyword] = used
                case ("contains",):
                    every.append({"items": used})
                case _:
                    every.append(used)
        return found | ({"allOf": every} if every else {})


def _is_reference(node: Schema) -> bool:
    """Whether other keywords mean nothing."""
    return isinstance(node.get("$ref"), str)


def _places(node: Schema) -> Schema:
    """The properties, patterns and items that a schema object lists, with empty schemas: they are not additional."""
    found: Schema = {}
    if _is_reference(node):
        return found
    for keyword in ("properties", "patternProperties"):
        if isinstance(named := node.get(keyword), dict):
            found[keyword] = {name: {} for name in named}
    if isinstance(items := node.get("items"), list):
        found["items"] = [{} for _ in items]
    return found


def _program(size: int) -> str:
    """The format that counts texts for an expression of this size."""
    return f"program of {size} bytes"


_CHEAP = frozenset((*MESSAGES, UUID))
"""Expressions of our own: few states at once."""


class Size(NamedTuple):
    """How large a value is."""

    values: int
    """All values inside, itself included."""
    name_characters: int
    """The names of all members together."""


def size_of(event: Any) -> Size:
    """Count the values inside a value."""
    count = characters = 0
    stack = [event]
    while stack:
        node = stack.pop()
        count += 1
        if isinstance(node, dict):
            characters += sum(map(len, node))
        if isinstance(node, dict | list):
            stack.extend(children(node))
    return Size(count, characters)
