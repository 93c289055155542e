"""Hypothesis strategies for Avro: schemas as clients write them, their values, and earlier versions of a schema."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st


NAMES = ("a", "b", "c", "d")
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
ALWAYS = "z"
"""A field that every inner record has, so that no array is of values without bytes."""

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    # Bytes that are not valid text can't be read as a string, though the specification allows it.
    "bytes": st.text(max_size=5).map(str.encode),
    "string": st.text(max_size=5),
}


@st.composite
def schemas(draw: Callable[..., Any]) -> dict[str, Any]:
    """A record, without recursion and without arrays of empty items; each named type has its own name."""
    return _record(draw, "Event", 3, iter(range(1_000)))


def _record(draw: Callable[..., Any], name: str, depth: int, numbers: Any) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    return {"type": "record", "name": name, "fields": [_field(draw, name, depth, numbers) for name in names]}


def _field(draw: Callable[..., Any], name: str, depth: int, numbers: Any) -> dict[str, Any]:
    type_ = _type(draw, depth, numbers, union=True)
    field = {"name": name, "type": type_}
    if type_ == "null" or (isinstance(type_, list) and type_[0] == "null"):
        field["default"] = None
    elif type_ in ("int", "long") and draw(st.booleans()):
        field["default"] = 7
    return field


def _type(draw: Callable[..., Any], depth: int, numbers: Any, *, union: bool = False, nothing: bool = True) -> Any:  # noqa: PLR0911
    simple = PRIMITIVES if nothing else PRIMITIVES[1:]
    kinds = ["primitive", "primitive", "enum", "fixed"]
    if depth:
        kinds += ["array", "map", "record", *(["union", "union"] if union else [])]
    match draw(st.sampled_from(kinds)):
        case "enum":
            return {"type": "enum", "name": f"E{next(numbers)}", "symbols": ["A", "B", "C"]}
        case "fixed":
            return {"type": "fixed", "name": f"F{next(numbers)}", "size": draw(st.integers(1, 3))}
        case "array":
            return {"type": "array", "items": _type(draw, depth - 1, numbers, nothing=False)}
        case "map":
            return {"type": "map", "values": _type(draw, depth - 1, numbers, nothing=False)}
        case "record":
            record = _record(draw, f"R{next(numbers)}", depth - 1, numbers)
            record["fields"].append({"name": ALWAYS, "type": "int"})
            return record
        case "union":
            first = draw(st.sampled_from(PRIMITIVES))
            other = _type(draw, depth - 1, numbers)
            return [first] if other == first else [first, other]
        case _:
            return draw(st.sampled_from(simple))


@st.composite
def evolutions(draw: Callable[..., Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas, of which the second was derived from the first by some changes."""
    before = draw(schemas())
    return before, _changed(draw, before)


_WIDER = {"int": "long", "long": "double", "float": "double", "string": "bytes", "bytes": "string"}


def _changed(draw: Callable[..., Any], node: Any) -> Any:  # noqa: PLR0911
    if isinstance(node, str):
        return _WIDER.get(node, node) if draw(st.integers(0, 3)) == 0 else node
    if isinstance(node, list):
        changed = [_changed(draw, branch) for branch in node]
        kept = [branch for n, branch in enumerate(changed) if branch not in changed[:n]]
        return kept[::-1] if draw(st.integers(0, 3)) == 0 else kept
    change = draw(st.integers(0, 4)) == 0
    match node["type"]:
        case "array":
            return node | {"items": _changed(draw, node["items"])}
        case "map":
            return node | {"values": _changed(draw, node["values"])}
        case "enum" if change:
            symbols = draw(st.lists(st.sampled_from("ABCD"), min_size=1, unique=True))
            return node | {"symbols": symbols} | draw(st.sampled_from([{}, {"default": symbols[0]}]))
        case "fixed" if change:
            return node | {"size": draw(st.integers(1, 3))}
        case "record":
            return node | {"fields": _changed_fields(draw, node["fields"])}
        case _:
            return node


def _changed_fields(draw: Callable[..., Any], fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = [
        {name: value for name, value in field.items() if name != "default"} | {"type": _changed(draw, field["type"])}
        for field in fields
        if field["name"] == ALWAYS or draw(st.integers(0, 4))
    ]
    if kept and kept[0]["name"] != ALWAYS and draw(st.integers(0, 4)) == 0:
        old = kept[0]["name"]
        kept[0] = kept[0] | {"name": "renamed", "aliases": [old]}
    if draw(st.booleans()):
        kept.append({"name": "added", "type": "long", "default": 1})
    return kept[::-1] if draw(st.booleans()) else kept


def values(node: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911
    """Values of a schema whose types are all defined inline."""
    if isinstance(node, str):
        return _VALUES[node]
    if isinstance(node, list):
        return st.one_of([values(branch) for branch in node])
    match node["type"]:
        case "enum":
            return st.sampled_from(node["symbols"])
        case "fixed":
            return st.binary(min_size=node["size"], max_size=node["size"])
        case "array":
            return st.lists(values(node["items"]), max_size=3)
        case "map":
            return st.dictionaries(st.text(max_size=3), values(node["values"]), max_size=3)
        case "record":
            return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in node["fields"]})
        case other:
            return values(other)
