"""The table of types in CSV: reference values-csv#types."""

import csv
import io
import json

import pytest

from rioni.cli.publishing.csv_records import csv_events
from rioni.cli.publishing.records import Unreadable, lines_of
from tests.support.value_tables import rows_of


def _read(schema, cell):
    """The only row of a file with the columns `id` and `x`."""
    document = {
        "properties": {"id": {"type": "string"}, "x": json.loads(schema)},
        "definitions": {"price": {"type": "number"}},
    }
    text = io.StringIO()
    csv.writer(text).writerows([["id", "x"], ["A", cell]])
    (found,) = csv_events(lines_of(io.BytesIO(text.getvalue().encode())), {}, document)
    return found


@pytest.mark.parametrize(("schema", "cell", "value"), rows_of("values-csv", "Types"))
def test_the_table_holds(schema, cell, value):
    found = _read(schema, cell)
    if value.startswith("error: "):
        assert isinstance(found, Unreadable)
        assert found.line == 2
        assert value.removeprefix("error: ") in found.reason
    elif value == "left out":
        assert found.text == b'{"id":"A"}'
    else:
        assert found.text == f'{{"id":"A","x":{value}}}'.encode()


def test_the_table_has_every_type_of_a_schema():
    declared = {kind for schema, _, _ in rows_of("values-csv", "Types") for kind in _kinds(json.loads(schema))}
    assert declared == {"string", "integer", "number", "boolean", "array", "object", "null"}


def _kinds(schema):
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds
