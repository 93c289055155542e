"""The tree of a compiled filter, read from the bytes in which the library hands it out (cel/expr/syntax.proto)."""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple


class Name(NamedTuple):
    """A variable."""

    name: str


class Constant(NamedTuple):
    """A literal; `kind` is the name of its JSON or CEL type."""

    kind: str
    value: Any


class Select(NamedTuple):
    """A member of an object, or with `has` the question whether there is one."""

    operand: "Node"
    field: str
    is_test: bool


class Call(NamedTuple):
    """A function or an operator, such as `_==_`; a method's first argument is the value that it is called on."""

    function: str
    arguments: tuple["Node", ...]


class Many(NamedTuple):
    """A list or a map that the expression makes; `kind` is `array` or `object`."""

    kind: str
    items: tuple["Node", ...]


class Macro(NamedTuple):
    """A macro: `step` is evaluated for each value of `values`, which `variable` names."""

    variable: str
    values: "Node"
    accumulator: str
    step: "Node"


Node = Name | Constant | Select | Call | Many | Macro
_MORE = 0x80
"""The bit of a byte that is set if another one follows."""


def tree(serialized: bytes) -> Node:
    """The tree of a checked expression.

    Args:
        serialized: a `google.protobuf.Any` with a `cel.expr.CheckedExpr`.
    """
    return _node(_one(_one(serialized, 2), 4))


def _node(data: bytes) -> Node:
    number, value = next(field for field in _fields(data) if field[0] in _READERS)
    return _READERS[number](value)


def _constant(data: bytes) -> Constant:
    number, value = next(_fields(data))
    kind, read = _CONSTANTS[number]
    return Constant(kind, read(value))


def _select(data: bytes) -> Select:
    fields = dict(_fields(data))
    return Select(_node(fields[1]), fields[2].decode(), bool(fields.get(3)))


def _call(data: bytes) -> Call:
    arguments = [_node(value) for number, value in _fields(data) if number in (1, 3)]
    return Call(_one(data, 2).decode(), tuple(arguments))


def _list(data: bytes) -> Many:
    return Many("array", tuple(_node(value) for number, value in _fields(data) if number == 1))


def _map(data: bytes) -> Many:
    entries = [dict(_fields(entry)) for entry in _all(data, 2)]
    return Many("object", tuple(_node(each[part]) for each in entries for part in (3, 4)))


def _macro(data: bytes) -> Macro:
    fields = dict(_fields(data))
    return Macro(fields[1].decode(), _node(fields[2]), fields[3].decode(), _node(fields[6]))


_CONSTANTS: Mapping[int, tuple[str, Callable[[Any], Any]]] = {
    1: ("null", lambda _: None),
    2: ("boolean", bool),
    3: ("integer", lambda value: value - (1 << 64) if value >> 63 else value),
    4: ("integer", int),
    5: ("number", lambda value: struct.unpack("<d", value)[0]),
    6: ("string", bytes.decode),
    7: ("bytes", bytes),
}
_READERS: Mapping[int, Callable[[bytes], Node]] = {
    3: _constant,
    4: lambda data: Name(_one(data, 1).decode()),
    5: _select,
    6: _call,
    7: _list,
    8: _map,
    9: _macro,
}


def _all(data: bytes, wanted: int) -> Iterator[Any]:
    return (value for number, value in _fields(data) if number == wanted)


def _one(data: bytes, wanted: int) -> Any:
    return next(_all(data, wanted))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message of protocol buffers: numbers, and the contents of other fields as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        match key & 7:
            case 0:
                value, place = _varint(data, place)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, place = _varint(data, place)
            case _:
                size = 4
        yield key >> 3, data[place : place + size]
        place += size


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte % _MORE) << shift
        place, shift = place + 1, shift + 7
        if byte < _MORE:
            return value, place
