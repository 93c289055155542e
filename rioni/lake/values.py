"""Values of JSON as values of Arrow: exactly, or not at all."""

import base64
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from math import isfinite
from typing import Any

import msgspec
import pyarrow as pa

from rioni.domain.errors import Invalid
from rioni.lake.column_types import JSON


class Misfit(ValueError):
    """A value does not fit its column; the text names both."""


Convert = Callable[[msgspec.Raw], Any]
"""Reads a value; raises Misfit, or another ValueError where it is no JSON."""

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
    """What reads the values of a column.

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
    """A number as a double that is the same number, as its shortest text says; raises ValueError where none is."""
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
