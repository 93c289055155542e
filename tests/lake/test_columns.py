"""The columns of event types: what each construct of a schema becomes, and what does not fit."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.lake.columns import COLUMNS_MAX, event_schema, evolve, record_batch


TEXT, INTEGER, NUMBER, BOOLEAN = pa.string(), pa.int64(), pa.float64(), pa.bool_()
ROW = pa.schema([("x", INTEGER), *((name, TEXT) for name in ("_partition", "_offset", "_corrupt"))])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, TEXT),
        ({"type": "string", "format": "date-time"}, TEXT),
        ({"type": "integer"}, INTEGER),
        ({"type": "number"}, NUMBER),
        ({"type": "boolean"}, BOOLEAN),
        ({"type": ["integer", "null"]}, INTEGER),
        ({"type": ["integer", "string"]}, TEXT),
        ({"type": "null"}, TEXT),
        ({"type": "object"}, TEXT),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, pa.struct([("a", INTEGER)])),
        ({"properties": {"a": {"type": "boolean"}}}, pa.struct([("a", BOOLEAN)])),
        ({"type": "array", "items": {"type": "number"}}, pa.list_(NUMBER)),
        ({"type": "array"}, TEXT),
        ({"enum": ["a", 1]}, TEXT),
        ({"oneOf": [{"type": "integer"}]}, TEXT),
        ({"$ref": "#/definitions/a"}, TEXT),
        ({}, TEXT),
        (True, TEXT),
    ],
    ids=str,
)
def test_a_json_schema_becomes_a_type(schema, expected):
    text = json.dumps({"properties": {"x": schema}})
    assert event_schema("json_schema", text, "undefined").field("x").type == expected


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ("long", INTEGER),
        ("double", NUMBER),
        (["null", "boolean"], BOOLEAN),
        (["int", "string"], TEXT),
        ({"type": "array", "items": "int"}, pa.list_(INTEGER)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, TEXT),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}, pa.struct([("a", INTEGER)])),
    ],
    ids=str,
)
def test_an_avro_schema_becomes_a_type(schema, expected):
    text = json.dumps({"type": "record", "name": "Event", "fields": [{"name": "x", "type": schema}]})
    assert event_schema("avro_schema", text, "business").field("x").type == expected


@pytest.mark.parametrize(
    ("category", "names"),
    [
        ("undefined", ["x"]),
        ("business", ["x", "metadata"]),
        ("data", ["data_type", "data_op", "data", "metadata"]),
    ],
)
def test_categories_add_columns(category, names):
    found = event_schema("json_schema", '{"properties": {"x": {"type": "integer"}}}', category)
    assert found.names == [*names, "_partition", "_offset", "_corrupt"]


def test_too_many_columns_are_refused():
    properties = {f"f{number}": {} for number in range(COLUMNS_MAX + 1)}
    with pytest.raises(Invalid, match="more than"):
        event_schema("json_schema", json.dumps({"properties": properties}), "undefined")


@given(value=JSON_VALUES)
def test_a_value_is_in_its_column_or_the_event_in_corrupt(value):
    event = json.dumps({"x": value}).encode()
    [row] = record_batch(ROW, [("0", "001", event)]).to_pylist()
    assert (row["_partition"], row["_offset"]) == ("0", "001")
    if row["_corrupt"] is None:
        assert row["x"] == value
        assert not isinstance(value, bool)
    else:
        assert (row["x"], row["_corrupt"]) == (None, event.decode())
        assert not isinstance(value, int) or isinstance(value, bool)


def test_a_union_widens_types():
    old = pa.schema([("a", INTEGER), ("b", TEXT), ("c", pa.struct([("d", INTEGER)]))])
    new = pa.schema([("a", NUMBER), ("b", INTEGER), ("c", pa.struct([("e", TEXT)])), ("f", BOOLEAN)])
    both = [("a", NUMBER), ("b", TEXT), ("c", pa.struct([("d", INTEGER), ("e", TEXT)])), ("f", BOOLEAN)]
    assert evolve(old, new) == pa.schema(both)
