"""Fields with names that are unusual in tables."""

import pytest

from tests.support.lake import create_orders, publish_orders, schema_of, stored


@pytest.mark.parametrize(
    "field", ["first name", "a.b", "a,b;{}()=", "Order", "ä", "_partition", "_corrupt", "a/b", "metadata2"]
)
def test_any_name_of_a_field_can_be_archived(client, lake, field):
    text = {"type": "string"}
    nested = {"type": "object", "properties": {field: text}}
    name = create_orders(client, schema=schema_of({"order": text, field: text, "nested": nested}))
    publish_orders(client, name, {"order": "a", field: "b", "nested": {field: "c"}})
    assert lake.archive(name)[name].archived == 1
    publish_orders(client, name, {"order": "a", field: "b", "nested": {field: "c"}})
    assert lake.archive(name)[name].archived == 1
    assert lake.archived(name) == stored(client, name)
