import io
import json

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.avro.evolution import incompatibilities
from rioni.domain.avro.nodes import definition
from rioni.domain.avro.parsing import parse_event_schema
from tests.support.avro import datum, record
from tests.support.avro_strategies import evolutions, values


def parse(document):
    return parse_event_schema(json.dumps(document))


def field(type_, **members):
    return {"name": "a", "type": type_, **members}


def compare(reader, writer):
    return [str(found) for found in incompatibilities(parse(reader), parse(writer))]


def enum(*symbols, **members):
    return {"type": "enum", "name": "E", "symbols": list(symbols), **members}


def fixed(size, name="F"):
    return {"type": "fixed", "name": name, "size": size}


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitive_types_are_promoted_as_specified(reader, writer):
    found = compare(record(field(reader)), record(field(writer)))
    if reader == writer or (writer, reader) in PROMOTIONS:
        assert found == []
    else:
        names = f"reader type: {reader.upper()} not compatible with writer type: {writer.upper()}"
        assert found == [f"{{ type:TYPE_MISMATCH, location:/fields/0/type, message:{names} }}"]


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (record(field("int", default=1)), record()),
        (record(field("int", aliases=["b"])), record(("b", "int"))),
        (record(), record(field("int"))),
        (record(("a", "int"), ("b", "int")), record(("b", "int"), ("a", "int"))),
        (record(namespace="x"), record(namespace="y")),
        (record(aliases=["Old"]), record(name="Old")),
        (record(aliases=["x.Old"]), record(name="Old", namespace="x")),
        (record(field(["null", "int"])), record(field("int"))),
        (record(field(["null", "double"])), record(field("int"))),
        (record(field("long")), record(field(["int", "long"]))),
        (record(field(["string", "long", "null"])), record(field(["null", "int"]))),
        (record(field({"type": "array", "items": "long"})), record(field({"type": "array", "items": "int"}))),
        (record(field({"type": "map", "values": "long"})), record(field({"type": "map", "values": "int"}))),
        (record(field(enum("A", "B"))), record(field(enum("A")))),
        (record(field(enum("A", default="A"))), record(field(enum("A", "B")))),
        (record(field(fixed(2))), record(field(fixed(2)))),
        (record(field([fixed(3), "null", fixed(2, "G")])), record(field(fixed(2, "G")))),
        (record(field([{"type": "array", "items": ["long"]}])), record(field({"type": "array", "items": ["int"]}))),
    ],
)
def test_schemas_that_the_specification_resolves_are_compatible(reader, writer):
    assert compare(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "found"),
    [
        (
            record(("foo", "int"), ("bar", "int"), ("baz", "int")),
            record(("foo", "int"), ("bar", "int")),
            "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/2, message:baz }",
        ),
        (record(name="A"), record(name="B"), "{ type:NAME_MISMATCH, location:/name, message:expected: B }"),
        (
            record(field(fixed(2))),
            record(field(fixed(3))),
            "{ type:FIXED_SIZE_MISMATCH, location:/fields/0/type/size, message:expected: 3, found: 2 }",
        ),
        (
            record(field(fixed(2))),
            record(field(fixed(2, "G"))),
            "{ type:NAME_MISMATCH, location:/fields/0/type/name, message:expected: G }",
        ),
        (
            record(field(enum("A"))),
            record(field(enum("C", "A", "B"))),
            "{ type:MISSING_ENUM_SYMBOLS, location:/fields/0/type/symbols, message:[B, C] }",
        ),
        (
            record(field(["int", "string"])),
            record(field("boolean")),
            "{ type:MISSING_UNION_BRANCH, location:/fields/0/type, message:reader union lacking writer type: BOOLEAN }",
        ),
        (
            record(field(["int", "string"])),
            record(field(["string", "null"])),
            "{ type:MISSING_UNION_BRANCH, location:/fields/0/type, message:reader union lacking writer type: NULL }",
        ),
        (
            record(field("int")),
            record(field(["int", "null"])),
            (
                "{ type:TYPE_MISMATCH, location:/fields/0/type, "
                "message:reader type: INT not compatible with writer type: NULL }"
            ),
        ),
        (
            record(field({"type": "array", "items": "int"})),
            record(field({"type": "array", "items": "string"})),
            (
                "{ type:TYPE_MISMATCH, location:/fields/0/type/items, "
                "message:reader type: INT not compatible with writer type: STRING }"
            ),
        ),
        (
            record(field(["null", record(("x", "int"), name="Inner")])),
            record(field(record(name="Inner"))),
            "{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/0/type/1/fields/0, message:x }",
        ),
        (
            record(field({"type": "map", "values": "int"})),
            record(field({"type": "array", "items": "int"})),
            (
                "{ type:TYPE_MISMATCH, location:/fields/0/type, "
                "message:reader type: MAP not compatible with writer type: ARRAY }"
            ),
        ),
    ],
)
def test_incompatibilities_are_named_with_their_position(reader, writer, found):
    assert compare(reader, writer) == [found]


def test_all_incompatibilities_are_named():
    assert len(compare(record(("a", "int"), ("b", "int"), ("c", "int")), record(("b", "string")))) == 3


def test_the_branch_that_readers_take_decides():
    inner = [record(("x", "int"), name="R", namespace="one"), record(name="R", namespace="two")]
    assert len(compare(record(field(inner)), record(field(inner[1])))) == 1


@given(st.data())
def test_data_of_compatible_schemas_can_be_read_by_another_library(data):
    first, second = data.draw(evolutions())
    # Most pairs fit in one direction, and a schema always fits itself: no example is thrown away.
    reader, writer = next(pair for pair in [(first, second), (second, first), (first, first)] if not compare(*pair))
    reads, writes = parse(reader), parse(writer)
    value = data.draw(values(writer))
    written = io.BytesIO(datum(value, writer))
    reader, writer = fastavro.parse_schema(definition(reads)), fastavro.parse_schema(definition(writes))
    read = fastavro.schemaless_reader(written, writer, reader)
    assert read.keys() == {field.name for field in reads.fields}
    assert written.read() == b""


@given(evolutions())
def test_every_schema_is_compatible_with_itself(pair):
    for document in pair:
        assert incompatibilities(parse(document), parse(document)) == []
