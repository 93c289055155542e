"""Fields with names that are unusual in tables."""

import json

from tests.support.lake import create_orders, publish_orders, schema_of, stored


FIELDS = ("first name", "a.b", "a,b;{}()=", "Order", "ä", "_partition", "_corrupt", "a/b", "order__2")

TAKEN = ("", "\0", "\0x", "event_day", "Event_Day", "_event", "_EVENT", "_event_type", "_offset", "_OFFSET", "_Rest")
"""Names that formats have not, or that are those of columns of the archive."""


def test_any_name_of_a_field_can_be_archived(client, lake):
    """Also in objects, and where names differ by their case alone."""
    text = {"type": "string"}
    properties = dict.fromkeys(("order", *FIELDS, *TAKEN), text)
    nested = {"n": {"type": "object", "properties": properties}, "Name, first": {"properties": {FIELDS[2]: text}}}
    name = create_orders(client, schema=schema_of(properties | nested))
    for number in range(2):
        values = {field: f"{field} {number}" for field in properties}
        publish_orders(client, name, values | {"n": values, "Name, first": {FIELDS[2]: "x"}})
        assert lake.archive(name)[name].archived == 1
    assert lake.archived(name) == stored(client, name)
    rows = lake.table(name).to_pylist()
    assert {row["order"] for row in rows} == {"order 0", "order 1"}
    assert {value for row in rows for column, value in row.items() if column.lower().startswith("order")} >= {
        f"{field} {number}" for field in ("order", "Order", "order__2") for number in range(2)
    }
    for row in rows:
        number = row["order"][-1]
        rest = json.loads(row["_rest"])
        assert {field: rest[field] for field in TAKEN} == {field: f"{field} {number}" for field in TAKEN}
        assert row["_offset"] != f"_offset {number}"
