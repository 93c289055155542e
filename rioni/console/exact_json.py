"""JSON whose numbers keep their digits: events may have numbers that a float would round."""

import hashlib
import json
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec
import orjson


def number(text: str) -> float | Decimal:
    """A number with a fraction or an exponent: a float, or a decimal if a float would change it."""
    found = float(text)
    if repr(found) == text:
        return found
    try:
        exact = Decimal(text)
    except InvalidOperation:
        return found  # No decimal has such an exponent, of 19 digits.
    return found if Decimal(repr(found)) == exact else exact


decode: Callable[[bytes | str], Any] = msgspec.json.Decoder(float_hook=number).decode
"""The value of JSON; raises msgspec.DecodeError."""
DIGITS_MAX = 18
"""The most digits of an integer that has at most 64 bits in any case."""
SHOWN_CHARACTERS = 100
decode_at = json.JSONDecoder(parse_float=number).raw_decode
"""The value that begins at an index of a text, and where it ends."""


def decode_typed(text: str) -> Any:
    """The value of JSON that a user typed; raises ValueError if it is not JSON, or has a member twice."""
    try:
        # Python's decoder accepts text that is not JSON, such as NaN.
        decode(text)
        return _typed.decode(text)
    except (RecursionError, msgspec.DecodeError) as ex:
        # This decoder reports the line and column of the error.
        orjson.loads(text)
        raise ValueError(str(ex)) from ex


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {name[:SHOWN_CHARACTERS]} is there twice")
        members[name] = value
    return members


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= DIGITS_MAX else Decimal(text)


_typed = json.JSONDecoder(parse_float=number, parse_int=_integer, object_pairs_hook=_unique)


def encode(value: Any, *, option: int | None = None) -> bytes:
    """The JSON of a value, also of one that was decoded here; with options of orjson."""
    return orjson.dumps(value, _written, option)


def seen(value: Any) -> str:
    """The hash by which a form knows the value that it was made of."""
    return hashlib.sha256(encode(value)).hexdigest()


def _written(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no form in JSON")
