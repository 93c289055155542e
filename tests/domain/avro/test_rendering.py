import io
import json
import math
import struct

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.avro.binary import DatumError
from rioni.domain.avro.nodes import definition
from rioni.domain.avro.parsing import parse_event_schema
from rioni.domain.avro.rendering import Renderer
from tests.support.avro import ORDER, datum, record
from tests.support.avro_strategies import schemas, values


def renderer(schema, bytes_max=999_000):
    return Renderer(parse_event_schema(json.dumps(schema)), bytes_max)


def render(schema, payload, bytes_max=999_000):
    return renderer(schema, bytes_max).render(payload)


def field(type_):
    return record(("a", type_))


def as_json(value):
    """A value of another library as JSON; bytes become text of the same characters."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, dict):
        return {name: as_json(inner) for name, inner in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


@given(st.data())
def test_the_json_equals_the_values_of_another_library(data):
    """Reference schemas#avro-data-as-json."""
    schema = data.draw(schemas())
    payload = datum(data.draw(values(schema)), schema)
    root = parse_event_schema(json.dumps(schema))
    read = fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(definition(root)), None)
    rendered = Renderer(root, 999_000).render(payload)
    assert b"\n" not in rendered
    assert json.loads(rendered) == as_json(read)


@pytest.mark.parametrize(
    ("type_", "value", "rendered"),
    [
        ("null", None, b"null"),
        ("boolean", True, b"true"),
        ("long", -(2**63), b"-9223372036854775808"),
        ("long", 2**63 - 1, b"9223372036854775807"),
        ("double", 1.5, b"1.5"),
        ("string", 'ä"\\\n\u2028', json.dumps('ä"\\\n\u2028', ensure_ascii=False).encode()),
        ("bytes", b"\x00\xff", '"\\u0000ÿ"'.encode()),
        (["null", "string"], "x", b'"x"'),
        ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", '"\\u0000ÿ"'.encode()),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", b'"B"'),
        ({"type": "array", "items": "int"}, [1, 2], b"[1,2]"),
        ({"type": "map", "values": "int"}, {"x": 1}, b'{"x":1}'),
        ({"type": "long", "logicalType": "timestamp-millis"}, 5, b"5"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x01", b'"\\u0001"'),
        (record(name="Empty"), {}, b"{}"),
    ],
)
def test_each_type_is_rendered_as_documented(type_, value, rendered):
    """Reference schemas#avro-data-as-json."""
    plain = {**type_, "logicalType": None} if isinstance(type_, dict) else type_
    assert render(field(type_), datum({"a": value}, field(plain))) == b'{"a":' + rendered + b"}"


def test_blocks_with_their_size_are_read():
    schema = field({"type": "array", "items": "int"})
    assert render(schema, b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00") == b'{"a":[1,2,3]}'


# --- hostile data ---


VARINT_64 = b"\xff" * 9 + b"\x01"
ARRAY = {"type": "array", "items": "int"}
MAP = {"type": "map", "values": "int"}


@pytest.mark.parametrize(
    ("type_", "payload", "message"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\x80", "ends too early"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("long", b"\xff" * 1_000, "more than 64 bits"),
        ("int", VARINT_64, "more than 32 bits"),
        ("boolean", b"", "ends too early"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("float", b"\x00\x00\x00", "ends too early"),
        ("float", struct.pack("<f", math.nan), "which JSON has no way to write"),
        ("double", struct.pack("<d", math.inf), "which JSON has no way to write"),
        ("double", struct.pack("<d", -math.inf), "which JSON has no way to write"),
        ("string", b"\x02\xff", "is not UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "is not UTF-8"),
        ("string", b"\x04a", "ends too early"),
        ("string", b"\x01", "is negative: -1"),
        ("string", VARINT_64, "is negative"),
        ("bytes", b"\xfe" + b"\xff" * 8 + b"\x01", "ends too early"),
        (["null", "int"], b"\x04", "no branch 2"),
        (["null", "int"], b"\x01", "no branch -1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "no symbol 1"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no symbol -1"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "ends too early"),
        (ARRAY, b"\xfe" + b"\xff" * 8 + b"\x01", "items"),
        (ARRAY, VARINT_64, "ends too early"),
        (ARRAY, VARINT_64 + b"\x02\x00", "items"),
        (ARRAY, b"\x01\x80\x01\x02\x00", "says that it has 64 bytes"),
        (ARRAY, b"\x01\x01\x02\x00", "says that it has -1 bytes"),
        (ARRAY, b"\x01\x04\x02\x00", "a block ends at byte 3, not at 4"),
        (ARRAY, b"\x04\x02", "items"),
        (MAP, b"\x04\x02a\x02\x02a\x04\x00", "has a key twice"),
        (MAP, b"\x02\x02\xff\x02\x00", "is not UTF-8"),
        ("int", b"\x02\x02", "1 bytes follow after its end"),
    ],
)
def test_data_that_do_not_fit_the_schema_are_rejected_with_the_position(type_, payload, message):
    with pytest.raises(DatumError, match=message):
        render(field(type_), payload)


def test_rendering_stops_when_the_json_is_too_long():
    wide = record(*[("x" * 1_000 + str(n), "null") for n in range(100)], ("z", "boolean"), name="Wide")
    schema = field({"type": "array", "items": wide})
    payload = b"\xfe\x0f" + b"\x01" * 1_023 + b"\x00"
    with pytest.raises(DatumError, match="as JSON it has more than 999000 bytes"):
        render(schema, payload)


def test_json_of_exactly_the_limit_is_accepted():
    payload = datum({"order_id": "1", "amount": None})
    size = len(render(ORDER, payload))
    assert render(ORDER, payload, size)
    with pytest.raises(DatumError, match=f"more than {size - 1} bytes"):
        render(ORDER, payload, size - 1)


DEEP = record(
    ("a", {"type": "map", "values": ["null", {"type": "array", "items": ["string", "bytes", "double"]}]}),
    ("b", ["null", record(("x", "long"), ("y", {"type": "enum", "name": "E", "symbols": ["A"]}), name="R")]),
    ("c", {"type": "array", "items": {"type": "array", "items": "int"}}),
)


@given(st.binary(max_size=200))
def test_any_bytes_are_rejected_or_rendered(payload):
    try:
        rendered = render(DEEP, payload)
    except DatumError:
        return
    assert json.loads(rendered).keys() == {"a", "b", "c"}


@given(values(DEEP), st.data())
def test_a_changed_byte_is_rejected_or_rendered(value, data):
    payload = bytearray(datum(value, DEEP))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for mutant in (bytes(payload), bytes(payload[:cut]), bytes(payload) * 2):
        try:
            rendered = render(DEEP, mutant)
        except DatumError:
            continue
        assert json.loads(rendered).keys() == {"a", "b", "c"}
