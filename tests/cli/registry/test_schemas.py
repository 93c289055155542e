"""`rioni schemas`: what people see."""

import json
from pathlib import Path

import pytest

from rioni.client import EventType, Schema


@pytest.fixture
def orders(client, name):
    client.event_types.create(
        EventType(name=name, owning_application="shop", schema=Schema.json({"type": "object", "properties": {}}))
    )
    return name


def test_a_schema_is_shown_added_and_found(rioni, orders):
    code, out, _ = rioni("schemas", "show", orders)
    assert code == 0
    assert json.loads(out) == {"type": "object", "properties": {}}
    wider = json.dumps({"type": "object", "properties": {"note": {"type": "string"}}})
    assert rioni("schemas", "check", orders, "-", stdin=wider) == (
        0,
        "Compatible with version 1.0.0, mode forward\n",
        "",
    )
    assert rioni("schemas", "add", orders, "-", stdin=wider)[1] == f"{orders} has the schema as version 1.1.0.\n"
    assert rioni("schemas", "find", orders, "-", stdin=wider)[1] == f"{orders} has the schema as version 1.1.0.\n"
    listed = rioni("schemas", "list", orders)[1].splitlines()
    assert [line.split()[0] for line in listed] == ["version", "1.1.0", "1.0.0"]


def test_an_incompatible_schema_is_a_finding(rioni, orders):
    code, out, _ = rioni("schemas", "check", orders, "-", stdin='{"type": "object", "properties": 1}')
    assert code == 1
    assert out.startswith("Not compatible with version 1.0.0, mode forward: ")


def test_a_file_that_is_no_json_is_an_error(rioni, orders):
    Path("schema.json").write_text("{")
    code, _, err = rioni("schemas", "add", orders, "schema.json")
    assert code == 2
    assert err.startswith("Error: schema.json:1: is not JSON: ")
    code, _, err = rioni("schemas", "add", orders, "absent.json")
    assert (code, err) == (2, "Error: absent.json can't be read: No such file or directory.\n")
