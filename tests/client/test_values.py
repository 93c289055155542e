"""The tables in docs/reference/values-python.md, and properties of all values.

Reference values-python#values-that-are-written values-python#values-that-are-refused
values-python#values-that-are-read
"""

import json
from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag
from fractions import Fraction
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.client import values
from rioni.client.consumption.event_values import decoder
from rioni.client.encoding import encode_event
from tests.support.value_tables import rows_of


class Color(Enum):
    RED = "red"


class Odd(Enum):
    NAN = float("nan")


class Level(IntEnum):
    HIGH = 3


class Flags(IntFlag):
    A = 1
    B = 2


class NamedPoint(NamedTuple):
    x: int
    y: int


class Point(msgspec.Struct):
    x: float
    unset: Any = msgspec.UNSET


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str


@dataclass
class DataPoint:
    x: float


@attrs.define
class AttrsPoint:
    x: float


class Model(pydantic.BaseModel):
    x: float


class Loose(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")
    x: float


def contains_itself() -> list[Any]:
    found: list[Any] = []
    found.append({"again": found})
    return found


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


NAMES = {
    each.__name__: each
    for each in (
        AttrsPoint, Color, DataPoint, Decimal, Flags, Fraction, Level, Model, NamedPoint, OrderedDict,
        Point, PurePosixPath, Renamed, UUID, ZoneInfo, Odd, contains_itself, date, datetime, deque, msgspec, nested,
        time, timedelta, timezone,
    )
} | {"UTC": UTC, "numpy": np, "MappingProxyType": MappingProxyType}  # fmt: skip


def value_of(expression: str) -> Any:
    return eval(expression, dict(NAMES))


def read(event: bytes) -> Any:
    return decoder(None)("")(msgspec.Raw(event))["v"]


@pytest.mark.parametrize(("expression", "text", "expected"), rows_of("values-python", "Values that are written"))
@pytest.mark.parametrize("inside", ["dictionary", "deep", "struct"])
def test_a_value_is_written_exactly(expression, text, expected, inside):
    value = value_of(expression)
    holder = msgspec.defstruct("Holder", [("v", Any)])
    event = {"dictionary": {"v": value}, "deep": {"v": [{"w": value}]}, "struct": holder(value)}[inside]
    encoded = encode_event(event, add_metadata=False)
    assert encoded.decode() == (f'{{"v":[{{"w":{text}}}]}}' if inside == "deep" else f'{{"v":{text}}}')
    found = read(encoded)[0]["w"] if inside == "deep" else read(encoded)
    wanted = value_of(expected)
    assert (repr(found), type(found)) == (repr(wanted), type(wanted))
    if not isinstance(value, (memoryview, msgspec.Raw, dict)):
        kind = type(value)
        typed = msgspec.json.decode(text.encode(), type=kind, strict=True)
        assert isinstance(typed, kind)
        assert typed == value


@pytest.mark.parametrize(("expression", "reason"), rows_of("values-python", "Values that are refused"))
def test_a_value_that_json_does_not_have_is_refused_with_its_path(expression, reason):
    value = value_of(expression)
    for event, path in ({"v": value}, "$.v"), ({"a": 1, "b": [0, {"c": value}]}, "$.b[1].c"):
        with pytest.raises((TypeError, ValueError)) as caught:
            encode_event(event, add_metadata=True)
        assert reason.replace("$.v", path) in str(caught.value)
        assert str(caught.value).startswith(path)


@pytest.mark.parametrize(("text", "expected"), rows_of("values-python", "Values that are read"))
def test_a_value_is_read_exactly(text, expected):
    found, wanted = read(f'{{"v":{text}}}'.encode()), value_of(expected)
    assert (repr(found), type(found)) == (repr(wanted), type(wanted))


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][-+]?[0-9]{1,3})?", fullmatch=True))
def test_every_number_is_read_with_its_value(text):
    found = read(f'{{"v":{text}}}'.encode())
    assert Decimal(repr(found) if isinstance(found, float) else found) == Decimal(text)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.text(st.characters(), max_size=5),
    st.decimals(places=3, allow_nan=True), st.datetimes(timezones=st.one_of(st.none(), st.timezones())), st.uuids(),
    st.binary(max_size=3),
)  # fmt: skip
NAMES_OF_MEMBERS = st.one_of(st.text(st.characters(), max_size=3), st.integers(0, 3), st.none())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES_OF_MEMBERS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_any_value_is_written_as_it_is_or_refused(members):
    try:
        encoded = encode_event(members, add_metadata=False)
    except (TypeError, ValueError) as ex:
        assert str(ex).startswith("$")  # noqa: PT017 - nothing is refused without a path
        return
    assert json.loads(encoded, parse_constant=pytest.fail) is not None
    assert same(members, msgspec.json.Decoder(float_hook=values.number).decode(encoded))


def same(value: Any, found: Any) -> bool:
    """Whether what was read is what was written."""
    match value:
        case dict():
            return value.keys() == found.keys() and all(same(each, found[name]) for name, each in value.items())
        case list():
            return len(value) == len(found) and all(map(same, value, found))
        case float():
            return isinstance(found, float) and repr(value) == repr(found)
        case Decimal():
            return value == Decimal(repr(found) if isinstance(found, float) else found)
        case bool() | int() | str() | None:
            return type(value) is type(found) and value == found
    return value == msgspec.convert(found, type(value))


@pytest.mark.parametrize("event", [Point(float("nan")), DataPoint(float("inf")), AttrsPoint(float("nan"))])
def test_events_of_classes_are_checked(event):
    with pytest.raises(ValueError, match=r"^\$\.x is (nan|inf), which is no number in JSON"):
        encode_event(event, add_metadata=True)


@pytest.mark.parametrize("kind", [Model, Loose])
def test_models_of_pydantic_write_themselves_but_no_number_that_json_does_not_have(kind):
    assert encode_event(kind(x=1.5), add_metadata=False) == b'{"x":1.5}'
    for x in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"^\$\.x is"):
            encode_event(kind(x=x), add_metadata=True)


def test_text_that_is_none_is_refused():
    with pytest.raises(ValueError, match="character 8 is half of a surrogate pair"):
        encode_event('{"a": "\ud800"}', add_metadata=True)


def test_decimals_of_types_are_read_with_their_digits():
    kind = msgspec.defstruct("Kind", [("v", Decimal)])
    assert decoder(kind)("")(b'{"v":0.10000000000000000001}').v == Decimal("0.10000000000000000001")
