"""The table of docs/reference/values-arrow.md of rows that are published.

Reference values-arrow#rows-that-are-published
"""

import json

import pytest

from rioni.client import values
from rioni.domain.errors import Invalid
from rioni.spark.event_reader import IS_JSON
from rioni.spark.writer import Rows
from tests.support.lake import PROPERTIES, create_orders, stored
from tests.support.value_tables import rows_of


TABLE = rows_of("values-arrow", "Rows that are published")
CARRIED = [(sql, text) for sql, text in TABLE if not text.startswith("error: ")]

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def published(frame) -> list[str]:
    rows = Rows(frame.schema)
    return [values.encode(event).decode() for batch in frame.toArrow().to_batches() for event in rows.events(batch)]


@pytest.mark.parametrize(("sql", "text"), TABLE)
def test_a_value_is_written_exactly_or_refused_with_its_path(registered, sql, text):
    frame = registered.sql(f"SELECT {sql} AS v")
    if text.startswith("error: "):
        with pytest.raises(Invalid) as refused:
            published(frame) if text[7] == "$" or "column v:" in text else Rows(frame.schema)
        assert text.removeprefix("error: ") in str(refused.value)
    else:
        assert published(frame) == ["{}" if text == "left out" else f'{{"v":{text}}}']


def test_the_format_publishes_them_all(registered, server, client):
    schema = {"type": "json_schema", "schema": json.dumps({"properties": PROPERTIES, "additionalProperties": True})}
    name = create_orders(client, schema=schema)
    columns = ", ".join(f"{sql} AS v{number}" for number, (sql, _) in enumerate(CARRIED))
    registered.sql(f"SELECT 'a' AS order, 1 AS amount, {columns}").write.format("rioni").options(
        url=server.url, event_type=name
    ).mode("append").save()
    (event,) = (json.loads(each) for each in stored(client, name))
    expected = {f"v{number}": text for number, (_, text) in enumerate(CARRIED) if text != "left out"}
    found = {name: each for name, each in event.items() if name.startswith("v")}
    assert found == {name: json.loads(text) for name, text in expected.items()}


@pytest.mark.parametrize(
    ("sql", "path"),
    [
        ("1 AS a, interval '1' month AS b", "Column b of type"),
        ("struct(array(map('x', interval '1' month)) AS c) AS b", "Column b.c[]{} of type"),
    ],
)
def test_a_type_without_json_is_refused_when_the_query_is_planned(registered, server, client, sql, path):
    name = create_orders(client)
    with pytest.raises(Exception, match="can't be written as JSON") as refused:
        registered.sql(f"SELECT {sql}").write.format("rioni").options(url=server.url, event_type=name).mode(
            "append"
        ).save()
    assert path in str(refused.value)
    assert stored(client, name) == []


def test_columns_of_the_source_are_left_out_or_put_back(registered):
    own = "'0' AS _partition, '1' AS _offset, 'x' AS _event_type, cast(null AS string) AS _corrupt"
    rest = """'{"n": 1.10, "s": {"b": 2}, "l": [null, {"y": 3}]}' AS _rest"""
    frame = registered.sql(f"SELECT struct(1 AS a) AS s, array(struct(1 AS x), struct(2 AS x)) AS l, {own}, {rest}")
    assert published(frame) == ['{"s":{"a":1,"b":2},"l":[{"x":1},{"x":2,"y":3}],"n":1.1}']


def test_a_row_that_does_not_fit_its_columns_is_the_event_that_it_was(registered):
    frame = registered.sql("""SELECT cast(null AS int) AS a, '{"a": "x", "metadata": {"eid": "1"}}' AS _corrupt""")
    assert published(frame) == ['{"a":"x","metadata":{"eid":"1"}}']


def test_texts_of_a_column_of_json_are_written_as_json(registered):
    frame = registered.sql("""SELECT '{"a": 1.10}' AS j, '"5"' AS k""")
    schema = frame.schema
    schema["j"].metadata = schema["k"].metadata = {IS_JSON: True}
    assert published(registered.createDataFrame(frame.rdd, schema)) == ['{"j":{"a": 1.10},"k":"5"}']


def test_what_the_broker_sets_in_metadata_is_left_out(registered):
    members = ("eid", "occurred_at", "received_at", "published_by", "version", "event_type", "flow_id")
    columns = ", ".join(f"'{each}' AS {each}" for each in members)
    frame = registered.sql(f"""SELECT struct({columns}, '{{"a":"b"}}' AS span_ctx) AS metadata""")
    expected = '{"eid":"eid","occurred_at":"occurred_at","flow_id":"flow_id","span_ctx":{"a":"b"}}'
    assert published(frame) == [f'{{"metadata":{expected}}}']
