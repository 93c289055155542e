"""Renders Avro data directly as the JSON that consumers read, and checks them completely on the way.

Unions are plain, as in JSON; bytes and fixed are text whose characters are the bytes (ISO-8859-1), as in Avro's JSON
encoding; logical types are rendered as their underlying types: a timestamp is its number.

A decoder of our own, since the bytes are untrusted: libraries build a value for every byte before it can be checked,
in C, without letting other threads run. Here a schema is compiled to a tree of functions that append JSON to a bounded
buffer. So neither depth, which the schema bounds, nor size can exceed those of a JSON event.

PERF: 7 µs for a record of 10 fields; fastavro and orjson together take 4 µs, and check less.
"""

import math
from collections.abc import Callable
from struct import Struct

import msgspec

from rioni.domain.avro.binary import DatumError, check_block_end, ended, read_block, read_bytes, read_long, read_text
from rioni.domain.avro.nodes import Array, Enum, Fixed, Map, Node, Primitive, Record, Union


_Render = Callable[[bytes, int, bytearray], int]
"""Appends the JSON of the value at an index to a buffer; returns the index after the value."""

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_encode = msgspec.json.encode


class Renderer:
    """Renders the data of one schema."""

    def __init__(self, schema: Record, bytes_max: int) -> None:
        """Compile the schema.

        Args:
            schema: the schema of the data.
            bytes_max: maximum length of the JSON of one datum.
        """
        self._render = _Compiler(bytes_max).compile(schema)
        self._bytes_max = bytes_max

    def render(self, datum: bytes) -> bytes:
        """The JSON of a datum: an object, on one line.

        Raises:
            DatumError: the datum does not fit the schema, holds a value without JSON form, or its JSON gets too long.
        """
        out = bytearray()
        try:
            end = self._render(datum, 0, out)
        except IndexError:
            raise ended(datum) from None
        if end != len(datum):
            raise DatumError(f"{len(datum) - end} bytes follow after its end")
        _check_length(out, self._bytes_max)
        return bytes(out)


def _check_length(out: bytearray, bytes_max: int) -> None:
    if len(out) > bytes_max:
        raise DatumError(f"as JSON it has more than {bytes_max} bytes")


class _Compiler:
    """Compiles each node to a function, a shared node only once."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._compiled: dict[int, _Render] = {}

    def compile(self, node: Node) -> _Render:
        if (render := self._compiled.get(id(node))) is None:
            render = self._compiled[id(node)] = self._function(node)
        return render

    def _function(self, node: Node) -> _Render:  # noqa: PLR0911 - one for each type
        match node:
            case Primitive(type=kind):
                return _PRIMITIVES[kind]
            case Fixed(size=size):
                return _fixed(size)
            case Enum(symbols=symbols):
                return _enum([_encode(symbol) for symbol in symbols])
            case Union(branches=branches):
                return _union([self.compile(branch) for branch in branches])
            case Array(items=items):
                return _array(self.compile(items), self._bytes_max)
            case Map(values=values):
                return _map(self.compile(values), self._bytes_max)
            case Record(fields=fields):
                names = [b"%b%b:" % (b"," if n else b"{", _encode(field.name)) for n, field in enumerate(fields)]
                inner = [self.compile(field.type) for field in fields]
                return _record(list(zip(names, inner, strict=True)), self._bytes_max)


# --- Primitive types ---


def _null(_data: bytes, place: int, out: bytearray) -> int:
    out += b"null"
    return place


def _boolean(data: bytes, place: int, out: bytearray) -> int:
    byte = data[place]
    if byte > 1:
        raise DatumError(f"the boolean at byte {place} is neither 0 nor 1")
    out += b"true" if byte else b"false"
    return place + 1


def _int(data: bytes, place: int, out: bytearray) -> int:
    value, end = read_long(data, place)
    if not _INT_MIN <= value <= _INT_MAX:
        raise DatumError(f"the int at byte {place} has more than 32 bits")
    out += b"%d" % value
    return end


def _long(data: bytes, place: int, out: bytearray) -> int:
    value, end = read_long(data, place)
    out += b"%d" % value
    return end


def _floating(layout: Struct) -> _Render:
    size = layout.size

    def render(data: bytes, place: int, out: bytearray) -> int:
        if place + size > len(data):
            raise ended(data)
        (value,) = layout.unpack_from(data, place)
        if not math.isfinite(value):
            raise DatumError(f"the number at byte {place} is {value}, which JSON has no way to write")
        out += _encode(value)
        return place + size

    return render


def _bytes(data: bytes, place: int, out: bytearray) -> int:
    value, end = read_bytes(data, place)
    out += _encode(value.decode("latin-1"))
    return end


def _string(data: bytes, place: int, out: bytearray) -> int:
    value, end = read_text(data, place)
    out += _encode(value)
    return end


_PRIMITIVES: dict[str, _Render] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _floating(_FLOAT),
    "double": _floating(_DOUBLE),
    "bytes": _bytes,
    "string": _string,
}


# --- Complex types ---


def _fixed(size: int) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        if place + size > len(data):
            raise ended(data)
        out += _encode(data[place : place + size].decode("latin-1"))
        return place + size

    return render


def _enum(symbols: list[bytes]) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        index, end = read_long(data, place)
        if not 0 <= index < len(symbols):
            raise DatumError(f"the enum at byte {place} has no symbol {index}")
        out += symbols[index]
        return end

    return render


def _union(branches: list[_Render]) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        index, end = read_long(data, place)
        if not 0 <= index < len(branches):
            raise DatumError(f"the union at byte {place} has no branch {index}")
        return branches[index](data, end, out)

    return render


def _array(item: _Render, bytes_max: int) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        out += b"["
        first = True
        while True:
            count, end, place = read_block(data, place)
            if not count:
                break
            for _ in range(count):
                if not first:
                    out += b","
                first = False
                place = item(data, place, out)
                _check_length(out, bytes_max)
            check_block_end(place, end)
        out += b"]"
        return place

    return render


def _map(value: _Render, bytes_max: int) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        out += b"{"
        seen: set[str] = set()
        while True:
            count, end, place = read_block(data, place)
            if not count:
                break
            for _ in range(count):
                key, place = read_text(data, place)
                if key in seen:
                    raise DatumError(f"the map has a key twice, the second one ends at byte {place}")
                if seen:
                    out += b","
                seen.add(key)
                out += _encode(key)
                out += b":"
                place = value(data, place, out)
                _check_length(out, bytes_max)
            check_block_end(place, end)
        out += b"}"
        return place

    return render


def _record(fields: list[tuple[bytes, _Render]], bytes_max: int) -> _Render:
    def render(data: bytes, place: int, out: bytearray) -> int:
        for name, field in fields:
            out += name
            place = field(data, place, out)
        out += b"}" if fields else b"{}"
        _check_length(out, bytes_max)
        return place

    return render
