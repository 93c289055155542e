"""Values are read as they were published, with the columns of the schema and with those of a user, and written back."""

import json

import pytest

from tests.support.lake import canonical, create_orders, publish_orders, stored


PROPERTIES = {"order": {"type": "string"}, "open": {"additionalProperties": True}}
OPEN = {"type": "json_schema", "schema": json.dumps({"properties": PROPERTIES, "additionalProperties": True})}
EVENTS = [
    {"order": "a", "open": 5},
    {"order": "b", "open": "5", "at": "2026-01-02T03:04:05Z", "tags": {"x": 1}},
    {"order": "c", "open": {"x": [1, None]}, "more": {"z": "1"}, "price": 1.25},
]

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture
def orders(client):
    name = create_orders(client, schema=OPEN)
    publish_orders(client, name, *EVENTS)
    return name


def test_open_and_undeclared_members_are_json(read, orders):
    rows = {row.order: row for row in read(orders).collect()}
    assert [rows[each].open for each in "abc"] == ["5", '"5"', '{"x":[1,null]}']
    rests = [json.loads(rows[each]["_rest"] or "{}") for each in "abc"]
    assert rests == [{name: each for name, each in event.items() if name not in ("order", "open")} for event in EVENTS]


def test_rows_that_were_read_are_the_same_events_when_they_are_written(read, client, server, orders):
    target = create_orders(client, schema=OPEN)
    read(orders).write.format("rioni").options(url=server.url, event_type=target).mode("append").save()

    def contents(name):
        events = [json.loads(each) for each in stored(client, name)]
        assert {each["metadata"]["event_type"] for each in events} == {name}
        kept = [
            event | {"metadata": {each: event["metadata"][each] for each in ("eid", "occurred_at")}} for event in events
        ]
        return sorted(map(canonical, kept))

    assert contents(target) == contents(orders)


def test_a_schema_of_ones_own_has_types_that_schemas_of_json_do_not_have(registered, server, orders):
    reader = registered.read.format("rioni").options(url=server.url, event_type=orders)
    columns = "order string, open string, at timestamp, tags map<string, int>, price decimal(5,2), _corrupt string"
    rows = {row.order: row for row in reader.schema(columns).load().selectExpr("*", "string(at) AS text").collect()}
    assert [rows[each].open for each in "abc"] == ["5", '"5"', '{"x":[1,null]}']
    assert (rows["b"].text, rows["b"].tags, str(rows["c"].price)) == ("2026-01-02 03:04:05", {"x": 1}, "1.25")
    assert [row["_corrupt"] for row in rows.values()] == [None] * 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("order string, price int", "price is not of type int32: 1.25"),
        ("order string, at date", "at is not of type date32"),
        ("order string, at interval day to second", "Column at can't be of type duration"),
        ("order string, tags map<int, int>", "Column tags can't be of type map"),
    ],
)
def test_a_column_that_can_not_be_read_ends_the_query_with_its_name(registered, server, orders, columns, message):
    frame = registered.read.format("rioni").options(url=server.url, event_type=orders).schema(columns)
    with pytest.raises(Exception, match=r"can't be of|does not fit") as refused:
        frame.load().collect()
    assert message in str(refused.value)
