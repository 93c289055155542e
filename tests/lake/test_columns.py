"""Columns by a schema, events as rows of them, and the union of versions."""

import json

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.errors import Invalid
from rioni.lake.columns import JSON, event_schema, evolve, list_of
from rioni.lake.rows import misfit, record_batch


TEXT, INTEGER, NUMBER, BOOLEAN = pa.string(), pa.int64(), pa.float64(), pa.bool_()
OWN = ["_rest", "_partition", "_offset", "_corrupt"]


def column(schema, kind="json_schema"):
    if kind == "json_schema":
        text = json.dumps({"properties": {"x": schema}, "definitions": {"money": {"type": "number"}}})
    else:
        text = json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": schema}]})
    return event_schema(kind, text, "undefined").field("x").type


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "string"}, TEXT),
        ({"type": "integer"}, INTEGER),
        ({"type": ["number", "null"]}, NUMBER),
        ({"type": "boolean"}, BOOLEAN),
        ({"type": ["integer", "string"]}, JSON),
        ({}, JSON),
        (True, JSON),
        ({"oneOf": [{"type": "integer"}]}, JSON),
        ({"$ref": "#/definitions/money"}, NUMBER),
        ({"$ref": "#/definitions/none"}, JSON),
        ({"$ref": "#/properties/x"}, JSON),
        ({"type": "object"}, JSON),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, pa.struct([("a", INTEGER)])),
        ({"type": "object", "properties": {"a": {}, "A": {}}}, JSON),
        ({"type": "object", "properties": {"a": {}, "": {}}}, JSON),
        ({"type": "object", "properties": {"a": {}, "b\0": {}}}, JSON),
        ({"type": "array", "items": {"type": "integer"}}, pa.list_(INTEGER)),
        ({"type": "array", "items": {}}, JSON),
        ({"type": "array"}, JSON),
    ],
    ids=str,
)
def test_a_member_has_the_type_of_its_json_schema_or_is_text(schema, kind):
    assert column(schema) == kind


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ("long", INTEGER),
        (["null", "double"], NUMBER),
        (["int", "string"], JSON),
        ({"type": "long", "logicalType": "timestamp-millis"}, INTEGER),
        ({"type": "int", "logicalType": "date"}, INTEGER),
        ({"type": "string", "logicalType": "uuid"}, TEXT),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, TEXT),
        ({"type": "fixed", "name": "f", "size": 2}, TEXT),
        ({"type": "array", "items": {"type": "map", "values": "int"}}, JSON),
        ({"type": "array", "items": "boolean"}, pa.list_(BOOLEAN)),
        ({"type": "map", "values": "int"}, JSON),
        ({"type": "record", "name": "s", "fields": [{"name": "a", "type": "int"}]}, pa.struct([("a", INTEGER)])),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, TEXT),
    ],
    ids=str,
)
def test_a_field_has_the_type_of_its_avro_schema_or_is_text(schema, kind):
    assert column(schema, "avro_schema") == kind


@pytest.mark.parametrize(
    ("category", "names"),
    [
        ("undefined", ["a", *OWN]),
        ("business", ["a", "metadata", *OWN]),
        ("data", ["data_type", "data_op", "data", "metadata", *OWN]),
    ],
)
def test_categories_have_the_columns_of_their_events(category, names):
    assert event_schema("json_schema", '{"properties": {"a": {}}}', category).names == names


def test_a_schema_that_can_not_be_read_or_is_too_wide_is_refused():
    with pytest.raises(Invalid):
        event_schema("json_schema", "{", "business")
    wide = json.dumps({"properties": {str(number): {} for number in range(1_001)}})
    with pytest.raises(Invalid):
        event_schema("json_schema", wide, "business")


def test_references_do_not_multiply_without_end():
    many = {str(number): {"$ref": "#"} for number in range(2)} | {
        f"x{n}": {"$ref": "#/properties/d"} for n in range(50)
    }
    schema = {"properties": many | {"d": {"properties": {f"y{n}": {"$ref": "#/properties/d"} for n in range(50)}}}}
    found = event_schema("json_schema", json.dumps(schema), "undefined")
    assert len(str(found)) < 1_000_000


SCHEMA = pa.schema(
    [
        ("i", INTEGER),
        ("n", NUMBER),
        ("b", BOOLEAN),
        ("t", TEXT),
        ("l", pa.list_(INTEGER)),
        ("s", pa.struct([("i", INTEGER)])),
        ("j", JSON),
        ("_rest", JSON),
        *((name, TEXT) for name in OWN[1:]),
    ]
)


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ({}, {}),
        ({"i": 1, "n": 1, "b": True, "t": "x"}, {"i": 1, "n": 1.0, "b": True, "t": "x"}),
        ({"i": 2.0}, {"i": 2}),
        ({"n": 2**53}, {"n": 2.0**53}),
        ({"n": 2**53 + 1}, None),
        ({"j": {"a": [1]}}, {"j": '{"a":[1]}'}),
        ({"j": "5"}, {"j": '"5"'}),
        ({"j": 5}, {"j": "5"}),
        ({"j": None}, {}),
        ({"l": [1, None], "s": {"i": 3, "o": 1}}, {"l": [1, None], "s": {"i": 3}, "_rest": '{"s":{"o":1}}'}),
        ({"o": None}, {"_rest": '{"o":null}'}),
        ({"t": {"a": [1]}}, None),
        ({"t": 5}, None),
        ({"i": "1"}, None),
        ({"i": 2**63}, None),
        ({"i": True}, None),
        ({"b": 0}, None),
        ({"l": [1.5]}, None),
        ({"l": {}}, None),
        ({"s": []}, None),
        ({"s": {"i": "x"}}, None),
    ],
    ids=str,
)
def test_an_event_is_a_row_or_is_corrupt(event, row):
    data = orjson.dumps(event) if event != {"i": 2**63} else b'{"i":9223372036854775808}'
    (found,) = record_batch(SCHEMA, [("0", "7", data)]).to_pylist()
    assert (found.pop("_partition"), found.pop("_offset")) == ("0", "7")
    assert found.pop("_corrupt") == (data.decode() if row is None else None)
    assert {name: value for name, value in found.items() if value is not None} == (row or {})
    assert bool(misfit(SCHEMA, data)) == (row is None)


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "_rest", "_Offset", "_PARTITION", "_corrupt", "_event_type"])
def test_a_member_that_can_have_no_column_is_in_the_rest(name):
    schema = event_schema("json_schema", json.dumps({"properties": {name: {"type": "string"}, "a": {}}}), "undefined")
    assert schema.names == ["a", *OWN]
    (row,) = record_batch(schema, [("0", "7", orjson.dumps({name: "x"}))]).to_pylist()
    assert json.loads(row["_rest"]) == {name: "x"}


KINDS = st.recursive(
    st.sampled_from([TEXT, INTEGER, NUMBER, BOOLEAN, JSON]),
    lambda inner: (
        inner.map(list_of)
        | st.dictionaries(st.sampled_from("ab"), inner, min_size=1).map(lambda fields: pa.struct(list(fields.items())))
    ),
    max_leaves=4,
)


@given(KINDS, KINDS)
def test_the_union_of_two_versions_holds_what_both_hold_whatever_their_order(one, other):
    first, second = pa.schema([("x", one)]), pa.schema([("x", other)])
    both = evolve(first, second)
    assert evolve(both, first) == evolve(both, second) == both
    assert evolve(first, first) == first


def test_a_named_type_of_avro_is_what_it_was_defined_as():
    money = {"type": "record", "name": "Money", "namespace": "x", "fields": [{"name": "a", "type": "long"}]}
    fields = [{"name": "p", "type": money}, {"name": "q", "type": ["null", "x.Money"]}, {"name": "r", "type": "None"}]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    found = event_schema("avro_schema", schema, "undefined")
    assert found.field("p").type == found.field("q").type == pa.struct([("a", INTEGER)])
    assert found.field("r").type == JSON


def test_records_of_avro_that_have_themselves_end():
    fields = [{"name": f"f{number}", "type": ["null", "r"]} for number in range(20)]
    schema = json.dumps({"type": "record", "name": "r", "fields": fields})
    assert len(str(event_schema("avro_schema", schema, "undefined"))) < 1_000_000
