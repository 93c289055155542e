"""Events as rows, one by one: each value exactly, or the event does not fit, and is kept as JSON in `_corrupt`."""

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from math import isfinite
from typing import Any

import msgspec
import pyarrow as pa

from rioni.domain.errors import Invalid
from rioni.lake.columns import CORRUPT, DOC, JSON, OFFSET, OWN, PARTITION, REST, marked


# --- Values of JSON as values of Arrow: exactly, or not at all ---


class Misfit(ValueError):
    """A value does not fit its column; the text names both."""


Convert = Callable[[msgspec.Raw], Any]
"""Reads a value; raises Misfit, or another ValueError if it is no JSON."""

_NULL = b"null"
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)
_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_SHORT_FRACTION = re.compile(r"[^.]*(?:\.[0-9]{1,6}0*)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})?")
_DIGITS_MAX = 1_000
_EXACT = Context(prec=_DIGITS_MAX)


def converter(kind: pa.DataType, path: str) -> Convert:
    """Return a function that reads the values of a column.

    Raises:
        Invalid: values of JSON can't be read as values of this type.
    """
    if kind == JSON:
        return lambda raw: None if bytes(raw) == _NULL else bytes(raw).decode()
    if pa.types.is_struct(kind):
        fields = {each.name: converter(each.type, f"{path}.{each.name}") for each in kind}
        return _unless_null(lambda raw: _struct(fields, path, raw))
    if pa.types.is_list(kind):
        items = converter(kind.value_type, f"{path}[]")
        return _unless_null(lambda raw: [items(each) for each in _of(_ITEMS, path, "array", raw)])
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        values = converter(kind.item_type, f"{path}{{}}")
        return _unless_null(lambda raw: [(name, values(e)) for name, e in _of(_MEMBERS, path, "object", raw).items()])
    return _leaf(kind, path)


def _leaf(kind: pa.DataType, path: str) -> Convert:
    read = _reader(kind)
    if read is None:
        raise Invalid(f"Column {path} can't be of type {kind}: values of JSON can't be read as such exactly.")

    def convert(raw: msgspec.Raw) -> Any:
        try:
            return read(bytes(raw).decode())
        except (ValueError, ArithmeticError) as ex:
            raise Misfit(f"{path} is not of type {kind}: {bytes(raw)[:100].decode(errors='replace')}") from ex

    return _unless_null(convert)


def _reader(kind: pa.DataType) -> Callable[[str], Any] | None:
    if pa.types.is_integer(kind):
        bits = kind.bit_width - 1
        return lambda text: _integer(text, bits)
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz else _local
    readers: dict[pa.DataType, Callable[[str], Any]] = {
        pa.string(): _string,
        pa.bool_(): _boolean,
        pa.float64(): double,
        pa.date32(): _date,
        pa.binary(): _bytes,
        pa.null(): _nothing,
    }
    return readers.get(kind)


def _unless_null(convert: Convert) -> Convert:
    return lambda raw: None if bytes(raw) == _NULL else convert(raw)


def _of(decoder: msgspec.json.Decoder[Any], path: str, kind: str, raw: msgspec.Raw) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise Misfit(f"{path} is no {kind}") from None


def _struct(fields: dict[str, Convert], path: str, raw: msgspec.Raw) -> dict[str, Any]:
    members = _of(_MEMBERS, path, "object", raw)
    return {name: convert(members[name]) if name in members else None for name, convert in fields.items()}


def _string(text: str) -> str:
    return _TEXT.decode(text)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text] if text in ("true", "false") else _fail(text)


def _nothing(text: str) -> None:
    _fail(text)


def _integer(text: str, bits: int) -> int:
    if _INTEGER.fullmatch(text) is None:
        exact = _number(text)
        if not -(2**bits) <= exact < 2**bits or exact != exact.to_integral_value():
            _fail(text)
        return int(exact)
    found = int(text) if len(text) < _DIGITS_MAX else _fail(text)
    return int(found) if -(2**bits) <= found < 2**bits else _fail(text)


def double(text: str) -> float:
    """A number as a double that is the same number, by its shortest text; raises ValueError if there is none."""
    exact, found = _number(text), float(text)
    if not isfinite(found) or (Decimal(repr(found)) != exact and Decimal(found) != exact):
        _fail(text)
    return found


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    found = _EXACT.normalize(_number(text))
    exponent = found.as_tuple().exponent
    if found and (not isinstance(exponent, int) or -exponent > scale or found.adjusted() + 1 + scale > precision):
        _fail(text)
    return found


def _number(text: str) -> Decimal:
    return Decimal(text) if _NUMBER.fullmatch(text) and len(text) < _DIGITS_MAX else _fail(text)


def _timestamp(text: str) -> datetime:
    found = datetime.fromisoformat(_precise(text).upper())
    # In UTC the first and the last days of all years may be in years that neither Python nor Spark have.
    return found.astimezone(UTC) if found.tzinfo is not None else _fail(text)


def _local(text: str) -> datetime:
    found = datetime.fromisoformat(_precise(text))
    return found if found.tzinfo is None and "T" in text else _fail(text)


def _precise(text: str) -> str:
    found = _string(text)
    return found if _SHORT_FRACTION.fullmatch(found) else _fail(text)


def _date(text: str) -> date:
    found = _string(text)
    return date.fromisoformat(found) if _DATE.fullmatch(found) else _fail(text)


def _bytes(text: str) -> bytes:
    found = base64.b64decode(_string(text), validate=True)
    return found if base64.b64encode(found).decode() == _string(text) else _fail(text)


def _fail(text: str) -> Any:
    raise ValueError(text)


Members = dict[str, msgspec.Raw]
MEMBERS = msgspec.json.Decoder(Members)
"""Reads the members of an event, each as it is written."""


def record_batch(
    schema: pa.Schema, events: Sequence[tuple[str, str, bytes]], mark: Mapping[str, str] = DOC
) -> pa.RecordBatch:
    """Events as rows: those that do not fit have their JSON in `_corrupt`, and no other values.

    Args:
        schema: with `_partition`, `_offset` and `_corrupt`; with `_rest`, it gets the members without a column.
        events: partition, offset, and the JSON of the event.
        mark: of columns of JSON.
    """
    converters = _converters(schema)
    rest_of = rest_reader(schema) if REST in schema.names else None
    columns: dict[str, list[Any]] = {each.name: [] for each in schema}
    for partition, offset, event in events:
        row: dict[str, Any] = {PARTITION: partition, OFFSET: offset}
        try:
            members = MEMBERS.decode(event)
            row |= {name: convert(members[name]) for name, convert in converters.items() if name in members}
            if rest_of is not None:
                row[REST] = rest_of(members)
        except ValueError:
            row = {PARTITION: partition, OFFSET: offset, CORRUPT: event.decode()}
        for name, values in columns.items():
            values.append(row.get(name))
    stored = marked(schema, mark)
    return pa.record_batch([pa.array(columns[each.name], each.type) for each in stored], schema=stored)


def rest_reader(schema: pa.Schema) -> Callable[[Members], str | None]:
    """Return a function that finds the parts of an event that have no column: JSON, None if all have one.

    Args:
        schema: with `_rest` or without.
    """
    rest_of = _of_members({each.name: each.type for each in schema if each.name not in OWN})

    def read(members: Members) -> str | None:
        rest = rest_of(members)
        return None if rest is None else msgspec.json.encode(rest).decode()

    return read


def misfit(schema: pa.Schema, event: bytes) -> str:
    """The reason why an event does not fit the columns; empty if it does."""
    try:
        members = MEMBERS.decode(event)
        for name, convert in _converters(schema).items():
            if name in members:
                convert(members[name])
    except ValueError as ex:
        return str(ex)
    return ""


def check_readable(schema: pa.Schema) -> None:
    """Check that each column has a type that values of JSON can be read as.

    Raises:
        Invalid: one has not; the text names its path.
    """
    _converters(schema)


def _converters(schema: pa.Schema) -> dict[str, Callable[[msgspec.Raw], Any]]:
    return {each.name: converter(each.type, each.name) for each in schema if each.name not in OWN}


def _of_members(kinds: Mapping[str, pa.DataType]) -> Callable[[Members], dict[str, Any] | None]:
    # PERF: asking Arrow's types for each value takes ten times as long.
    declared = {name: _rest_of(kind) for name, kind in kinds.items()}
    is_flat = all(inner is None for inner in declared.values())

    def rest(members: Members) -> dict[str, Any] | None:
        if is_flat and members.keys() <= declared.keys():
            return None
        found: dict[str, Any] = {}
        for name, each in members.items():
            if name not in declared:
                found[name] = each
            elif (inner := declared[name]) is not None and (left := inner(each)) is not None:
                found[name] = left
        return found or None

    return rest


def _rest_of(kind: pa.DataType) -> Callable[[msgspec.Raw], Any] | None:
    """Return a function that finds the rest of a value, in the shape of the value; None for a type that leaves nothing.

    An array of objects becomes an array of the same length, with null for items that are declared completely.
    """
    if pa.types.is_struct(kind):
        members = _of_members({each.name: each.type for each in kind})
        return lambda value: None if bytes(value) == b"null" else members(MEMBERS.decode(value))
    if not pa.types.is_list(kind) or (of_item := _rest_of(kind.value_type)) is None:
        return None

    def items(value: msgspec.Raw) -> Any:
        found = [
            None if bytes(each) == b"null" else of_item(each)
            for each in (() if bytes(value) == b"null" else _ITEMS.decode(value))
        ]
        return found if any(each is not None for each in found) else None

    return items
