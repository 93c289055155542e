"""Compares a filter with the schemas of its event types (reference subscriptions#filter-check)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jsonschema_rs.canonical.json import to_string

from rioni.domain.errors import Invalid
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.schemas.field_path import TooMuchToLookFor
from rioni.domain.schemas.path_check import ANY_ITEM, PathFound, Segment, Standing, path_in
from rioni.domain.subscriptions.event_filter import checked_filter, checked_tree
from rioni.domain.subscriptions.filter_reading import invalid_filter
from rioni.domain.subscriptions.filter_tree import Call, Constant, Macro, Many, Name, Node, Select
from rioni.domain.texts import nearest, proposal


FINDINGS_MAX = 5
Path = tuple[Segment, ...]
Kinds = frozenset[str] | None
"""The kinds of a value: types of JSON with `number` for all numbers, and those of CEL; None if they are not known."""

_COMPARISONS = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
_ORDERED = frozenset({"number", "string", "boolean", "timestamp", "duration", "bytes"})
_ARITHMETIC = {
    "_+_": frozenset({"number", "string", "array", "timestamp", "duration", "bytes"}),
    "_-_": frozenset({"number", "timestamp", "duration"}),
    **dict.fromkeys(("_*_", "_/_", "_%_", "-_"), frozenset({"number"})),
}
_STRING, _BOOLEAN, _NUMBER = frozenset({"string"}), frozenset({"boolean"}), frozenset({"number"})
_TAKES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("contains", "startsWith", "endsWith", "matches"), _STRING),
    **dict.fromkeys(("_&&_", "_||_", "!_"), _BOOLEAN),
    "size": frozenset({"string", "array", "object", "bytes"}),
    "timestamp": frozenset({"string", "number", "timestamp"}),
    "duration": frozenset({"string", "duration"}),
    "bool": frozenset({"boolean", "string"}),
    "bytes": frozenset({"string", "bytes"}),
    "int": frozenset({"number", "string", "timestamp"}),
    **dict.fromkeys(("uint", "double"), frozenset({"number", "string"})),
    "string": frozenset({"boolean", "number", "string", "timestamp", "duration", "bytes"}),
}
"""The kinds that functions accept as arguments."""
_GIVES: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((*_COMPARISONS, "@in", "contains", "startsWith", "endsWith", "matches"), _BOOLEAN),
    **dict.fromkeys(("_&&_", "_||_", "!_", "bool"), _BOOLEAN),
    **dict.fromkeys(("size", "int", "uint", "double"), _NUMBER),
    "string": _STRING,
    **{name: frozenset({name}) for name in ("timestamp", "duration", "bytes", "type")},
}


class FilterFindings(NamedTuple):
    """The problems of a filter, for one event type."""

    errors: dict[tuple[str, str], str]
    """Parts that can be true for none of its events: the texts, by the path and the kind of problem."""
    warnings: list[str]


def check_filter(expression: str, schemas: Mapping[str, EffectiveSchema | None]) -> Sequence[str]:
    """Check a filter that is submitted now.

    Args:
        expression: the filter.
        schemas: the schema of each event type; None if it is not a JSON schema: its paths are unknown then.

    Returns:
        Warnings: paths that no schema declares, and parts that only some of the event types exclude.

    Raises:
        Invalid: it is no filter, or all event types exclude a path or a comparison.
    """
    checked_filter(expression)
    root = checked_tree(expression)
    found = {name: _Check(name, schema).findings(root) for name, schema in schemas.items() if schema is not None}
    known = [set(each.errors) for each in found.values()]
    common = set.intersection(*known) if known and len(known) == len(schemas) else set()
    if common:
        refused = (text for each in found.values() for key, text in each.errors.items() if key in common)
        raise invalid_filter("; ".join(_distinct(refused)))
    errors = _distinct(error for each in found.values() for error in each.errors.values())
    return [*errors, *_distinct(warning for each in found.values() for warning in each.warnings)][:FINDINGS_MAX]


def filter_warnings(expression: str, schemas: Mapping[str, EffectiveSchema | None]) -> Sequence[str]:
    """The warnings for a filter that is in use, whatever the current schemas of its event types are."""
    try:
        return check_filter(expression, schemas)
    except Invalid as ex:
        return [str(ex)]


def newly_excluded(
    expression: str, event_type: str, before: EffectiveSchema | None, after: EffectiveSchema | None
) -> Sequence[str]:
    """The parts of a filter in use that can be true for no event after a change of a schema, but could be before.

    Args:
        expression: the filter.
        event_type: the name.
        before: the schema; None if it is not a JSON schema: the result is empty then.
        after: the new schema, in the same form.
    """
    if before is None or after is None:
        return []
    root = checked_tree(expression)
    known, errors = (_Check(event_type, schema).findings(root).errors for schema in (before, after))
    return _distinct(text for key, text in errors.items() if key not in known)


def _distinct(texts: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(texts)][:FINDINGS_MAX]


class _Check:
    """Walks the tree of a filter for one event type."""

    def __init__(self, event_type: str, schema: EffectiveSchema) -> None:
        self._event_type, self._schema = event_type, schema
        self._found = FilterFindings({}, [])
        self._variables: dict[str, Path | None] = {"event": (), "metadata": ("metadata",)}
        """The paths of variables; None for a variable with another value."""

    def findings(self, root: Node) -> FilterFindings:
        """Find the problems of an expression."""
        try:
            kinds = self._kinds(root)
            if kinds is not None and kinds.isdisjoint(_BOOLEAN):
                self._found.errors["", "boolean"] = (
                    f"it gives {_listed(kinds)} by the schema of {self._event_type}, and boolean is needed"
                )
        except TooMuchToLookFor:
            self._found.warnings.append(f"the schema of {self._event_type} is too entangled to be compared with it")
        return self._found

    def _kinds(self, node: Node) -> Kinds:
        """The kinds of values that an expression may have; notes problems inside it."""
        path = self._path(node)
        if path is not None:
            return self._look_up(path)
        match node:
            case Constant(kind=kind):
                return frozenset(("number" if kind == "integer" else kind,))
            case Select():
                return self._select(node)
            case Many(kind=kind, items=items):
                for each in items:
                    self._kinds(each)
                return frozenset((kind,))
            case Call() | Macro():
                return self._call(node) if isinstance(node, Call) else self._macro(node)
        return None

    def _path(self, node: Node) -> Path | None:
        """The path of an expression that leads into the event, from its root."""
        match node:
            case Name(name=name):
                return self._variables.get(name)
            case Select(operand=operand, field=field, is_test=False):
                segment: str | int = field
            case Call(function="_[_]", arguments=(operand, Constant(kind="string" | "integer", value=segment))):
                pass
            case _:
                return None
        base = self._path(operand)
        return None if base is None else (*base, segment)

    def _look_up(self, path: Path) -> Kinds:
        if not path or path == ("metadata",):
            return frozenset({"object"})
        found = path_in(self._schema, path)
        text, name = _written(path), self._event_type
        if found.standing is Standing.EXCLUDED:
            self._found.errors[text, ""] = f"{text}: the schema of {name} excludes it{_proposal(path, found)}"
            return None
        if found.standing is Standing.UNDECLARED:
            self._found.warnings.append(f"{text}: the schema of {name} does not declare it{_proposal(path, found)}")
            return None
        return _numbers(found.types)

    def _select(self, node: Select) -> Kinds:
        path = self._path(node._replace(is_test=False))
        if path is None:
            self._kinds(node.operand)
        else:
            self._look_up(path)
        return _BOOLEAN if node.is_test else None

    def _call(self, node: Call) -> Kinds:
        function, arguments = node.function, node.arguments
        kinds = [self._kinds(each) for each in arguments]
        if function in _COMPARISONS:
            self._compare(node, kinds)
        elif function == "@in":
            self._contain(node, kinds)
        elif function == "_?_:_":
            self._take(arguments[0], kinds[0], _BOOLEAN)
            return None if None in kinds else (kinds[1] or frozenset()) | (kinds[2] or frozenset())
        elif function.startswith("get"):
            self._take(arguments[0], kinds[0], frozenset({"timestamp", "duration"}))
            return _NUMBER
        elif function in _ARITHMETIC:
            for each, kind in zip(arguments, kinds, strict=True):
                self._take(each, kind, _ARITHMETIC[function])
            self._calculate(node)
            return kinds[0] if len(set(kinds)) == 1 and kinds[0] in (_NUMBER, _STRING) else None
        elif function in _TAKES:
            for each, kind in zip(arguments, kinds, strict=True):
                self._take(each, kind, _TAKES[function])
        return _GIVES.get(function)

    def _macro(self, node: Macro) -> Kinds:
        kinds = self._kinds(node.values)
        self._take(node.values, kinds, frozenset({"array", "object"}))
        base = self._path(node.values)
        outer = dict(self._variables)
        is_list = kinds is not None and "object" not in kinds and base is not None
        self._variables |= {node.variable: (*base, ANY_ITEM) if is_list and base is not None else None}
        self._variables[node.accumulator] = None
        if not (is_list and path_in(self._schema, (*(base or ()), ANY_ITEM)).standing is Standing.EXCLUDED):
            self._kinds(node.step)
        self._variables = outer
        return _BOOLEAN

    def _take(self, node: Node, kinds: Kinds, taken: frozenset[str]) -> None:
        path = self._path(node)
        if path is not None and kinds is not None and kinds.isdisjoint(taken):
            self._error(path, kinds, f"and {_listed(taken)} is needed")

    def _compare(self, node: Call, kinds: Sequence[Kinds]) -> None:
        (left, right), (left_kinds, right_kinds) = node.arguments, kinds
        if left_kinds is None or right_kinds is None:
            return
        both = left_kinds & right_kinds
        if node.function not in ("_==_", "_!=_"):
            both &= _ORDERED
        elif node.function == "_!=_" and "null" in (*left_kinds, *right_kinds):
            return  # To ask for another value than null is to ask whether there is one.
        if both:
            if node.function in ("_==_", "_!=_"):
                self._equal(self._path(left), [right])
                self._equal(self._path(right), [left])
            return
        path, own, other = self._path(left), left_kinds, right_kinds
        if path is None:
            path, own, other = self._path(right), right_kinds, left_kinds
        if path is not None:
            self._error(path, own, f"and is compared with {_listed(other)}")

    def _contain(self, node: Call, kinds: Sequence[Kinds]) -> None:
        (value, container), (value_kinds, container_kinds) = node.arguments, kinds
        self._take(container, container_kinds, frozenset({"array", "object"}))
        path, inside = self._path(value), self._path(container)
        if inside is not None and value_kinds is not None and container_kinds is not None:
            if container_kinds == frozenset({"array"}):
                self._item(value, value_kinds, (*inside, ANY_ITEM))
            elif "array" not in container_kinds and isinstance(value, Constant) and value.kind == "string":
                self._look_up((*inside, value.value))
        if path is None or value_kinds is None or not isinstance(container, Many) or container.kind != "array":
            return
        self._equal(path, container.items)
        items = [self._kinds(each) for each in container.items]
        if all(each is not None and each.isdisjoint(value_kinds) for each in items):
            others = frozenset(kind for each in items for kind in each or ())
            self._error(path, value_kinds, f"and is looked for among {_listed(others)}")

    def _item(self, value: Node, kinds: frozenset[str], items: Path) -> None:
        found = path_in(self._schema, items)
        if found.standing is not Standing.DECLARED:
            return
        if kinds.isdisjoint(own := _numbers(found.types)):
            self._error(items, own, f"and {_listed(kinds)} is looked for there")
        self._equal(items, [value])

    def _calculate(self, node: Call) -> None:
        """An int and a double can't be added: numbers of JSON are one or the other, as each is written."""
        for one, other in (node.arguments, node.arguments[::-1]) if len(node.arguments) > 1 else ():
            path = self._path(one)
            if path is None or not isinstance(other, Constant) or other.kind not in ("integer", "number"):
                continue
            types = path_in(self._schema, path).types & {"integer", "number"}
            text = _written(path)
            if types == {"integer"} and other.kind == "number":
                self._found.warnings.append(
                    f"{text}: integers of events are an int of CEL, and can't be calculated with {other.value}: "
                    f"write double({text})"
                )
            elif "number" in types:
                self._found.warnings.append(
                    f"{text}: a number without a fraction may be an int of CEL, others are a double, and the two can't "
                    f"be calculated with each other: write double({text}) and literals such as 1.0"
                )

    def _error(self, path: Path, kinds: frozenset[str], why: str) -> None:
        text = _written(path)
        functions = [name for name in ("timestamp", "duration") if name in why and "string" in kinds]
        hint = f": write {functions[0]}({text})" if functions else ""
        self._found.errors[text, why] = (
            f"{text}: it is {_listed(kinds)} by the schema of {self._event_type}, {why}{hint}"
        )

    def _equal(self, path: Path | None, values: Sequence[Node]) -> None:
        """Note that a path has none of these values, if the schema enumerates its own."""
        if not path or (own := path_in(self._schema, path).values) is None:
            return
        texts = [to_string(each.value) for each in values if isinstance(each, Constant)]
        if len(texts) < len(values) or not own.isdisjoint(texts):
            return
        names = [each for each in map(json.loads, sorted(own)) if isinstance(each, str)]
        for each in texts:
            hint = proposal(json.loads(each), names, "") if each.startswith('"') else ""
            self._found.errors[_written(path), each] = (
                f"{_written(path)}: {each} is none of its values by the schema of {self._event_type}{hint}"
            )


def _written(path: Path) -> str:
    text = "event"
    for segment in path:
        if isinstance(segment, str):
            text += f".{segment}" if segment.isidentifier() else f"[{segment!r}]"
        else:
            text += "[]" if segment is ANY_ITEM else f"[{segment}]"
    return text


def _numbers(types: frozenset[str]) -> frozenset[str]:
    return frozenset("number" if each == "integer" else each for each in types)


def _listed(kinds: frozenset[str]) -> str:
    return " or ".join(sorted(kinds))


def _proposal(path: Path, found: PathFound) -> str:
    near = [name for each in path if isinstance(each, str) and (name := nearest(each, found.names))]
    return f"; did you mean {near[-1]}?" if near else ""
