"""The tables of docs/reference/values-arrow.md and values-avro.md of columns and their values.

Reference values-arrow#columns values-arrow#values-in-columns values-avro#columns-of-avro-schemas
"""

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.lake.columns import JSON, event_schema
from rioni.lake.json_reader import read_batch
from rioni.lake.rows import check_readable, misfit, record_batch
from tests.support.lake import canonical, create_orders, publish_orders
from tests.support.value_tables import rows_of


LEAVES = {
    "string": pa.string(), "JSON": JSON, "boolean": pa.bool_(), "bigint": pa.int64(), "int": pa.int32(),
    "smallint": pa.int16(), "tinyint": pa.int8(), "double": pa.float64(), "float": pa.float32(),
    "decimal(4,2)": pa.decimal128(4, 2), "decimal(38,0)": pa.decimal128(38, 0), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"), "binary": pa.binary(),
    "time": pa.time64("us"), "interval": pa.duration("us"),
}  # fmt: skip
NAMES = {"Decimal": Decimal, "UTC": UTC, "date": date, "datetime": datetime}
OWN = [("_rest", JSON), *((name, pa.string()) for name in ("_partition", "_offset", "_corrupt"))]


def type_of(text: str) -> pa.DataType:
    """An Arrow type by a name of Spark."""
    if text in LEAVES:
        return LEAVES[text]
    kind, inside = text.removesuffix(">").split("<", 1)
    if kind == "array":
        return pa.list_(type_of(inside))
    if kind == "map":
        key, value = inside.split(", ")
        return pa.map_(type_of(key), type_of(value))
    return pa.struct([(name, type_of(each)) for name, each in (field.split(": ") for field in inside.split(", "))])


def rows(kind: pa.DataType, *values: str) -> list[dict]:
    """The rows of events with a member of these values, read in both ways."""
    schema = pa.schema([("v", kind), *OWN])
    events = [f'{{"v":{value}}}'.encode() for value in values]
    single = record_batch(schema, [("0", str(number), event) for number, event in enumerate(events)])
    together = read_batch(schema, "0", pa.array(map(str, range(len(events)))), events)
    assert together.equals(single)
    return single.to_pylist()


@pytest.mark.parametrize(("schema", "column"), rows_of("values-arrow", "Columns"))
def test_a_member_has_a_column_by_its_schema(schema, column):
    text = json.dumps({"properties": {"v": json.loads(schema)}})
    assert event_schema("json_schema", text, "undefined").field("v").type == type_of(column)


@pytest.mark.parametrize(("schema", "column"), rows_of("values-avro", "Columns of Avro schemas"))
def test_a_field_has_a_column_by_its_avro_schema(schema, column):
    text = json.dumps({"type": "record", "name": "Event", "fields": [{"name": "v", "type": json.loads(schema)}]})
    assert event_schema("avro_schema", text, "undefined").field("v").type == type_of(column)


@pytest.mark.parametrize(("column", "value", "expected"), rows_of("values-arrow", "Values in columns"))
def test_a_value_is_carried_exactly_or_does_not_fit(column, value, expected):
    kind = type_of(column)
    if expected == "refused":
        with pytest.raises(Invalid, match="Column v"):
            check_readable(pa.schema([("v", kind)]))
        return
    (row,) = rows(kind, value)
    reason = misfit(pa.schema([("v", kind)]), f'{{"v":{value}}}'.encode())
    if expected == "does not fit":
        assert (row["v"], row["_corrupt"]) == (None, f'{{"v":{value}}}')
        assert reason.startswith("v")
    else:
        assert (row["v"], row["_corrupt"], reason) == (eval(expected, dict(NAMES)), None, "")


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False).map(str), min_size=1, max_size=3))
def test_a_double_is_the_number_of_the_event_or_it_does_not_fit(texts):
    for text, row in zip(texts, rows(pa.float64(), *texts), strict=True):
        if row["_corrupt"] is None:
            assert Decimal(text) in (Decimal(row["v"]), Decimal(repr(row["v"])))


@pytest.mark.parametrize(
    ("event", "rest"),
    [
        ({"a": 1}, None),
        ({"a": 1, "b": "x"}, {"b": "x"}),
        ({"s": {"i": 1, "j": None}}, {"s": {"j": None}}),
        ({"l": [{"i": 1}, None, {"k": [1]}]}, {"l": [None, None, {"k": [1]}]}),
        ({"_offset": 7, "_rest": {}}, {"_offset": 7, "_rest": {}}),
    ],
)
def test_what_is_not_declared_is_kept_in_its_shape(event, rest):
    inner = pa.struct([("i", pa.int64())])
    schema = pa.schema([("a", pa.int64()), ("s", inner), ("l", pa.list_(inner)), *OWN])
    (row,) = record_batch(schema, [("0", "1", json.dumps(event).encode())]).to_pylist()
    assert (row["_rest"] and json.loads(row["_rest"])) == rest


def test_numbers_that_are_not_declared_keep_their_digits():
    schema = pa.schema([("a", pa.int64()), *OWN])
    (row,) = record_batch(schema, [("0", "1", b'{"n":[1.10,123456789012345678901234567890]}')]).to_pylist()
    assert row["_rest"] == '{"n":[1.10,123456789012345678901234567890]}'


EVENTS = [
    {"order": "a", "open": 5},
    {"order": "b", "open": "5"},
    {"order": "c", "open": {"x": [1, None]}, "lines": []},
    {"order": "d", "lines": [{"n": 1, "deep": {"y": 1}}, {"n": 2}]},
    {"order": "e", "more": {"z": 1}},
]


def test_each_format_has_the_content_of_all_members(client, lake):
    """Reads back what the archive has written, without its column of whole events."""
    lines = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    properties = {"order": {"type": "string"}, "open": {"additionalProperties": True}, "lines": lines}
    schema = {"properties": properties, "additionalProperties": True}
    lines["items"]["additionalProperties"] = True
    name = create_orders(client, schema={"type": "json_schema", "schema": json.dumps(schema)})
    publish_orders(client, name, *EVENTS)
    assert lake.archive(name)[name].archived == len(EVENTS)
    rows = {row["order"]: row for row in lake.table(name).to_pylist()}
    assert [rows[each]["open"] for each in "abcde"] == ["5", '"5"', '{"x":[1,null]}', None, None]
    assert [rows[each]["_rest"] for each in "abcde"] == [
        None, None, None, '{"lines":[{"deep":{"y":1}},null]}', '{"more":{"z":1}}'
    ]  # fmt: skip
    assert rows["d"]["lines"] == [{"n": 1}, {"n": 2}]


def test_an_event_type_without_declared_members_keeps_its_content(client, lake):
    name = create_orders(client, schema={"type": "json_schema", "schema": '{"additionalProperties": true}'},
                         partition_strategy="random", partition_key_fields=[])  # fmt: skip
    publish_orders(client, name, *EVENTS)
    lake.archive(name)
    found = [canonical(json.loads(row["_rest"])) for row in lake.table(name).to_pylist()]
    assert sorted(found) == sorted(map(canonical, EVENTS))


LINES = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
ARRAYS = {
    "order": {"type": "string"},
    "flat": {"type": "array", "items": {"type": "integer"}},
    "lines": LINES,
    "deep": {"type": "array", "items": LINES},
    "inner": {"type": "object", "properties": {"lines": LINES}},
}
MISSING_AND_EMPTY = {
    "missing": {},
    "null": {"flat": None, "lines": None, "deep": None, "inner": None},
    "empty": {"flat": [], "lines": [], "deep": [], "inner": {}},
    "with null": {"flat": [None], "lines": [None], "deep": [None, [], [None]], "inner": {"lines": None}},
    "with empty": {"flat": [1], "lines": [{}], "deep": [[{}], [{"n": 1}, None]], "inner": {"lines": []}},
    "full": {"flat": [1, 2], "lines": [{"n": 1}], "deep": [[{"n": 1}, {"n": 2}]], "inner": {"lines": [{"n": 3}]}},
}


def _filled(kind: pa.DataType, value):
    """A value with null for each member of an object that is missing."""
    if value is not None and pa.types.is_list(kind):
        return [_filled(kind.value_type, each) for each in value]
    if value is not None and pa.types.is_struct(kind):
        return {field.name: _filled(field.type, value.get(field.name)) for field in kind}
    return value


def test_null_is_not_empty(client, lake):
    """In the tables, and in the files that other engines read."""
    schema = re.sub(r'"type": ("\w+")', r'"type": [\1, "null"]', json.dumps({"properties": ARRAYS}))
    name = create_orders(client, schema={"type": "json_schema", "schema": schema})
    events = [{"order": order, **members} for order, members in MISSING_AND_EMPTY.items()]
    publish_orders(client, name, *events)
    lake.archive(name)
    kinds = {each.name: each.type for each in event_schema("json_schema", schema, "undefined") if each.name in ARRAYS}
    wanted = {
        event["order"]: {member: _filled(kind, event.get(member)) for member, kind in kinds.items()} for event in events
    }
    for rows in (lake.table(name).to_pylist(), lake.rows_of_files(name)):
        assert {row["order"]: {member: row[member] for member in ARRAYS} for row in rows} == wanted
