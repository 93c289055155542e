"""Python types of JSON values, as text in annotations."""

import json
from collections.abc import Iterable, Mapping
from typing import Any


KINDS = ("dict", "list", "str", "int", "float", "bool", "null")
"""The kinds of JSON values, in the order in which annotations name them."""
GENERAL = {
    "dict": "dict[str, Any]",
    "list": "list[Any]",
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "null": "None",
}
"""The type that includes all types of a kind."""


class PythonType:
    """A type by kind of value: at most one alternative for each, since decoders can distinguish no more.

    PythonType({"str": "UUID", "null": "None"}) is `UUID | None`; that of all kinds is `Any`.
    """

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.kinds = dict(kinds)

    @property
    def text(self) -> str:
        """The annotation."""
        if self.kinds == GENERAL or not self.kinds:
            return "Any"
        return " | ".join(self.kinds[kind] for kind in KINDS if kind in self.kinds)

    @property
    def nullable(self) -> bool:
        """Whether null is one of the values."""
        return "null" in self.kinds


ANY = PythonType(GENERAL)


def union(types: Iterable[PythonType]) -> PythonType:
    """The union of types; different alternatives of a kind are merged into a type that includes them."""
    kinds: dict[str, str] = {}
    for each in types:
        for kind, text in each.kinds.items():
            kinds[kind] = _common(kind, kinds.get(kind, text), text)
    return PythonType(kinds)


def _common(kind: str, first: str, second: str) -> str:
    if first == second:
        return first
    if first.startswith("Literal[") and second.startswith("Literal["):
        return f"{first[:-1]}, {second.removeprefix('Literal[')}"
    return GENERAL[kind]


def kind_of(value: Any) -> str:
    """The kind of a JSON value."""
    names = {dict: "dict", list: "list", str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}
    return names[type(value)]


def literal(values: Iterable[Any]) -> PythonType:
    """The type of values that equal one of these JSON values."""
    grouped: dict[str, list[str]] = {}
    for value in values:
        grouped.setdefault(kind_of(value), []).append(quoted(value))
    # Only texts and integers can be distinguished by value.
    precise: dict[str, str] = {
        kind: f"Literal[{', '.join(grouped[kind])}]" for kind in ("str", "int") if kind in grouped
    }
    return PythonType({**{kind: GENERAL[kind] for kind in grouped}, **precise})


def quoted(value: Any) -> str:
    """A text or number as Python source."""
    return json.dumps(value, ensure_ascii=False)
