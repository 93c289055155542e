import json

import fastavro
import pytest

from rioni.domain.avro.binary import BATCH_SCHEMAS, single_object_header
from rioni.domain.avro.nodes import canonical_form, definition
from rioni.domain.avro.parsing import BRANCHES_MAX, DEPTH_MAX, SCHEMA_BYTES_MAX, parse_event_schema
from rioni.domain.errors import Invalid
from tests.support.avro import ORDER, record


EVERYTHING = record(
    {"name": "a", "type": "string", "doc": "text", "order": "ignore", "aliases": ["b"]},
    {"name": "when", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 1},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}, "default": "B"},
    {"name": "again", "type": ["null", "shop.Kind"], "default": None},
    {"name": "hash", "type": {"type": "fixed", "name": "other.Hash", "size": 2}, "default": "\u00ff\u0000"},
    {"name": "hashes", "type": {"type": "array", "items": "other.Hash"}, "default": []},
    {"name": "map", "type": {"type": "map", "values": ["int", "double"]}, "default": {"x": 1}},
    {"name": "inner", "type": record(("x", "Kind"), {"name": "y", "type": "long", "default": 1}, name="Inner")},
    {"name": "nothing", "type": "null", "default": None},
    {"name": "flag", "type": "boolean", "default": True},
    {"name": "ratio", "type": "float", "default": 0.5},
    namespace="shop",
)


def parse(document):
    return parse_event_schema(document if isinstance(document, str) else json.dumps(document))


@pytest.mark.parametrize("document", [ORDER, EVERYTHING, record()])
def test_names_are_resolved_as_the_library_resolves_them(document):
    root = parse(document)
    assert canonical_form(root) == fastavro.schema.to_parsing_canonical_form(document)
    assert parse(definition(root)) != parse(record(("other", "int")))
    assert canonical_form(parse(definition(root))) == canonical_form(root)


def test_schemas_are_equal_but_for_doc_and_layout():
    assert parse(ORDER) == parse(json.dumps(ORDER | {"doc": "text"}, indent=2))
    for change in ({"aliases": ["Old"]}, {"name": "Order2"}, {"custom": 1}):
        assert parse(ORDER) != parse(ORDER | change)
    assert parse(record(("a", "long"))) != parse(record(("a", {"type": "long", "logicalType": "timestamp-millis"})))
    assert parse(record(("a", "long"))) != parse(record({"name": "a", "type": "long", "default": 1}))


def test_a_reference_may_be_written_as_an_object():
    kind = ("a", {"type": "enum", "name": "Kind", "symbols": ["A"]})
    assert parse(record(kind, ("b", {"type": "Kind"}))) == parse(record(kind, ("b", "Kind")))


A_ENUM = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ('{"type":"record","type":"record"}', 'Duplicate key "type"'),
        ("string", "Expecting value"),
        ('"string"', "the root has to be a record"),
        ([ORDER], "the root has to be a record, as an event is an object; found union"),
        (5, "no type at /"),
        ({}, "no type at /"),
        ({"type": {"type": "string"}}, "the type at / must be written as its name"),
        ({"type": "record", "fields": []}, "the name at /"),
        ({"type": "record", "name": "A"}, '"fields" is missing at /'),
        ({"type": "record", "name": "A", "fields": {}}, "/fields must be a list of fields"),
        ({"type": "record", "name": "A", "fields": [1]}, "/fields/0 must be an object"),
        ({"type": "record", "name": "a-b", "fields": []}, "letters, digits and underscores, found 'a-b'"),
        ({"type": "record", "name": "A", "namespace": "a..b", "fields": []}, "the namespace at /"),
        ({"type": "error", "name": "A", "fields": []}, "unknown type 'error'"),
        (record(name="int"), "int is the name of a primitive type"),
        (record(("metadata", "string")), '"metadata" property is reserved'),
        (record({"type": "int"}), "the name at /fields/0"),
        (record({"name": "a"}), '"type" is missing at /fields/0'),
        (record(("a", "strin")), "unknown type 'strin' at /fields/0/type"),
        (record(("a", "int"), ("a", "int")), "/fields has two fields of the same name"),
        (record(("a", "int"), aliases="b"), "/aliases must be a list of names"),
        (record({"name": "a", "type": "int", "aliases": ["x.y"]}), "/fields/0/aliases must be a list of names"),
        (record({"name": "a", "type": "int", "default": "1"}), "the default at /fields/0 does not fit its type: '1'"),
        (record({"name": "a", "type": "int", "default": 2**31}), "does not fit"),
        (record({"name": "a", "type": "int", "default": True}), "does not fit"),
        (record({"name": "a", "type": "bytes", "default": "\u0100"}), "does not fit"),
        (record({"name": "a", "type": ["null", "int"], "default": "x"}), "does not fit"),
        (record({"name": "a", "type": A_ENUM, "default": "B"}), "does not fit"),
        (record({"name": "a", "type": record(("x", "int"), name="B"), "default": {}}), "does not fit"),
        (record(("a", {"type": "enum", "name": "E", "symbols": []})), "the symbols of E must be different"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["A", "A"]})), "the symbols of E must be different"),
        (record(("a", {"type": "enum", "name": "E", "symbols": ["a b"]})), "symbols must be a list of names"),
        (record(("a", A_ENUM | {"default": "B"})), "the default of E must be one of its symbols"),
        (record(("a", A_ENUM), ("b", A_ENUM)), "E is defined twice"),
        (record(("a", {"type": "fixed", "name": "F", "size": -1})), "the size at /fields/0/type must be"),
        (record(("a", {"type": "fixed", "name": "F", "size": 10**12})), "the size at /fields/0/type must be"),
        (record(("a", [])), "must have 1 to 100 branches"),
        (record(("a", ["int"] * (BRANCHES_MAX + 1))), "must have 1 to 100 branches"),
        (record(("a", ["int", "int"])), "has the same type twice"),
        (record(("a", ["int", ["string"]])), "immediately contains another one"),
        (record(("a", {"type": "array"})), '"items" is missing at /fields/0/type'),
        (record(("a", {"type": "map"})), '"values" is missing at /fields/0/type'),
        ({"__fastavro_parsed": True, "__named_schemas": {}, "name": "x"}, "no type at /"),
    ],
)
def test_an_invalid_avro_schema_is_rejected_with_the_position(document, message):
    """Reference schemas#avro-schema-checks."""
    with pytest.raises(Invalid) as caught:
        parse(document)
    assert str(caught.value).startswith("failed to parse avro schema ")
    assert message in str(caught.value)


# --- schemas that would crash or exhaust a decoder ---


def nested(depth, wrap):
    schema = "int"
    for _ in range(depth):
        schema = wrap(schema)
    return record(("a", schema))


def doubling(levels):
    """Each level refers to the previous one twice: the schema is short, its expansion is not."""
    schema = record(("a", "int"), name="L0")
    fields = [("f0", schema)]
    fields += [(f"f{n}", record(("a", f"L{n - 1}"), ("b", f"L{n - 1}"), name=f"L{n}")) for n in range(1, levels)]
    return record(*fields)


def chain(levels):
    """Each level refers to the previous one: flat as it is written, deep as it is read."""
    fields = [("f0", record(("a", "int"), name="L0"))]
    fields += [(f"f{n}", record(("a", f"L{n - 1}"), name=f"L{n}")) for n in range(1, levels)]
    return record(*fields)


NOTHING = record(("a", "null"), ("b", {"type": "fixed", "name": "F", "size": 0}), name="Nothing")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (record(("next", ["null", "Order"])), "Order contains itself at /fields/0/type/1: recursive schemas"),
        (record(("all", {"type": "array", "items": "Order"})), "recursive schemas are refused"),
        (record(("a", {"type": "array", "items": "null"})), "the array at /fields/0/type is of values without bytes"),
        (record(("a", {"type": "map", "values": "null"})), "the map at /fields/0/type is of values without bytes"),
        (record(("a", {"type": "array", "items": NOTHING})), "is of values without bytes"),
        (nested(DEPTH_MAX, lambda inner: {"type": "array", "items": inner}), "more than 64 levels deep"),
        (nested(200, lambda inner: {"type": "array", "items": inner}), "levels deep"),
        ('{"type":"record","name":"A","fields":' + "[" * 100_000, "nested"),
        (nested(300, lambda inner: [inner]), "nested more than 256 levels deep"),
        (chain(70), "nested more than 64 levels deep"),
        (doubling(20), "more than 10000 types"),
        (
            record(("a", record(("x" * 50_000, "int"), name="L")), *[(f"f{n}", "L") for n in range(30)]),
            "more than 1000000 characters",
        ),
        (record(("a", "int"), doc="x" * SCHEMA_BYTES_MAX), f"larger than {SCHEMA_BYTES_MAX} bytes"),
        (
            record({"name": "a", "type": {"type": "array", "items": "int"}, "default": [1] * 60_000}),
            "its defaults are too large",
        ),
    ],
)
def test_a_schema_that_would_exhaust_a_decoder_is_rejected(document, message):
    """Reference schemas#avro-schema-checks."""
    with pytest.raises(Invalid, match=message):
        parse(document)


def test_a_schema_of_the_maximum_depth_is_accepted():
    for document in (
        nested(DEPTH_MAX - 2, lambda inner: {"type": "array", "items": inner}),
        record(("a", {"type": "array", "items": ["null", "int"]}), ("b", "null")),
    ):
        assert canonical_form(parse(document)) == fastavro.schema.to_parsing_canonical_form(document)


# --- fingerprints ---


def test_fingerprints_are_as_in_the_specification():
    # From the test cases of Avro's own distribution: the fingerprint of "int" is 7275d51a3f395c8f.
    assert single_object_header('"int"') == bytes.fromhex("c301" + "8f5c393f1ad57572")


def test_batch_schemas_have_different_fingerprints():
    headers = [schema.header for versions in BATCH_SCHEMAS.values() for schema in versions.values()]
    assert len(set(headers)) == 4
    assert all(len(header) == 10 for header in headers)
