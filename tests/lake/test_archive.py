"""Events are archived once, with their schema as it changes, and what does not fit is in quarantine."""

from datetime import date

from tests.support.lake import PROPERTIES, change_schema, create_orders, publish_orders, schema_of, stored


def orders(*numbers: int) -> list[dict]:
    return [{"order": f"o{number}", "amount": number} for number in numbers]


def test_what_the_broker_holds_is_archived_once_in_commits_of_limited_size(client, lake):
    name = create_orders(client)
    publish_orders(client, name, *orders(*range(250)))
    assert lake.archive(name, events=100)[name].archived == 250
    assert lake.archive(name)[name].archived == 0
    publish_orders(client, name, *orders(*range(250, 260)))
    assert lake.archive(name)[name].archived == 10
    assert lake.archived(name) == stored(client, name)
    table = lake.table(name)
    assert sorted(table["amount"].to_pylist()) == list(range(260))
    assert set(table["_partition"].to_pylist()) == {"0", "1", "2"}
    keys = set(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))
    assert len(keys) == 260
    days = {str(date.fromisoformat(str(each))) for each in table["event_day"].to_pylist()}
    assert days == {each["received_at"][:10] for each in table["metadata"].to_pylist()}
    assert lake.metric("events_total", name) == 260
    assert lake.metric("lag_events", name) == 0


def test_new_fields_become_columns_and_wider_types_further_columns(client, lake):
    name = create_orders(client)
    publish_orders(client, name, {"order": "a", "amount": 1})
    lake.archive(name)
    address = {"type": "object", "properties": {"city": {"type": "string"}}}
    change_schema(client, name, PROPERTIES | {"amount": {"type": "number"}, "address": address})
    publish_orders(client, name, {"order": "b", "amount": 1.5, "address": {"city": "Riga"}})
    lake.archive(name)
    wider = {"type": "object", "properties": address["properties"] | {"zip": {"type": "integer"}}}
    change_schema(client, name, PROPERTIES | {"amount": {"type": "string"}, "address": wider})
    publish_orders(client, name, {"order": "c", "amount": "two", "address": {"city": "Oslo", "zip": 7}})
    lake.archive(name)
    rows = {row["order"]: row for row in lake.table(name).to_pylist()}
    amounts = {order: [row[each] for each in ("amount", "amount__2", "amount__3")] for order, row in rows.items()}
    assert amounts == {"a": [1, None, None], "b": [None, 1.5, None], "c": [None, None, '"two"']}
    assert rows["b"]["address"]["city"] == "Riga"
    assert rows["c"]["address"] == {"city": "Oslo", "zip": 7}
    assert lake.archived(name) == stored(client, name)


def test_an_event_that_does_not_fit_is_quarantined_with_its_reason_and_counted(client, lake):
    # A schema without a type permits everything that is no object.
    address = {"properties": {"city": {"type": "string"}}}
    name = create_orders(client, schema=schema_of(PROPERTIES | {"address": address}))
    publish_orders(client, name, {"order": "a", "address": {"city": "Riga"}}, {"order": "b", "address": "none"})
    outcome = lake.archive(name)[name]
    assert (outcome.archived, outcome.quarantined) == (1, 1)
    (row,) = lake.table(name, "quarantine").to_pylist()
    assert row["reason"] == "address is no object"
    assert row["event_type"] == name
    assert lake.archived(name) == stored(client, name)
    assert lake.metric("quarantined_events_total", name) == 1
    publish_orders(client, name, {"order": "b", "address": 7})
    assert lake.archive(name)[name].quarantined == 1
    assert lake.table(name, "quarantine").num_rows == 2
    assert lake.archive(name)[name].quarantined == 0
