"""References within a schema lead to the same place in the broker and in every tool that reads schemas."""

import json

import pyarrow as pa
import pytest

from rioni.cli.publishing.csv_records import INTEGER, columns_of
from rioni.client import EventType, Schema
from rioni.client.codegen.event_models import event_models
from rioni.domain.schemas.checks import check_schema
from rioni.domain.schemas.walker import resolve
from rioni.lake.columns import event_schema


TARGET = {"type": "integer"}
DEFINITIONS = {
    "plain": TARGET,
    "two words": TARGET,
    "a/b": TARGET,
    "a~b": TARGET,
    "~1": TARGET,
    "50%": TARGET,
    "Größe": TARGET,
    "0": TARGET,
    "": TARGET,
    "list": {"oneOf": [{"type": "string"}, TARGET]},
}
REFERENCES = (
    "#/definitions/plain",
    "#/definitions/two%20words",
    "#/definitions/a~1b",
    "#/definitions/a~0b",
    "#/definitions/~01",
    "#/definitions/50%25",
    "#/definitions/Gr%C3%B6%C3%9Fe",
    "#/definitions/0",
    "#/definitions/",
    "#/definitions/list/oneOf/1",
)


def schema_with(reference):
    return {"type": "object", "properties": {"member": {"$ref": reference}}, "definitions": DEFINITIONS}


@pytest.mark.parametrize("reference", REFERENCES)
def test_all_find_what_a_reference_points_to(reference):
    schema = schema_with(reference)
    check_schema(json.dumps(schema), name="orders", category="undefined", compatibility_mode="none")
    assert resolve(schema, reference) == TARGET
    assert event_schema("json_schema", json.dumps(schema), "undefined").field("member").type == pa.int64()
    assert columns_of(["member"], {}, schema)[0].type == INTEGER
    event_type = EventType(name="orders", owning_application="shop", schema=Schema(schema=json.dumps(schema)))
    assert "member: int | None = None" in event_models([event_type])


@pytest.mark.parametrize("place", ["list/oneOf/-1", "list/oneOf/01", "nope"])
def test_a_reference_that_leads_nowhere_leads_nowhere_for_all(place):
    reference = f"#/definitions/{place}"
    schema = schema_with(reference)
    with pytest.raises(LookupError):
        resolve(schema, reference)
    assert event_schema("json_schema", json.dumps(schema), "undefined").field("member").type != pa.int64()
    assert columns_of(["member"], {}, schema)[0].type is None
    event_type = EventType(name="orders", owning_application="shop", schema=Schema(schema=json.dumps(schema)))
    with pytest.raises(ValueError, match="leads nowhere"):
        event_models([event_type])


def test_a_class_has_the_name_of_its_definition():
    line = {"type": "object", "properties": {"sku": {"type": "string"}}}
    schema = {"properties": {"line": {"$ref": "#/definitions/line%20item"}}, "definitions": {"line item": line}}
    event_type = EventType(name="orders", owning_application="shop", schema=Schema(schema=json.dumps(schema)))
    assert "line: LineItem | None = None" in event_models([event_type])
