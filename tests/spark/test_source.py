"""Spark reads exactly the events that were published."""

import json

import pytest

from tests.support.lake import create_orders, publish_orders, schema_of


pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def orders(server):
    """An event type with forty events."""
    with server.client() as client:
        name = create_orders(client)
        publish_orders(client, name, *({"order": str(number), "amount": number} for number in range(40)))
        return name


def places(rows) -> set[tuple[str, str]]:
    return {(row["_partition"], row["_offset"]) for row in rows}


def test_a_read_is_what_was_published(read, orders):
    found = read(orders, events_per_task=7)
    assert found.columns == ["order", "amount", "metadata", "_rest", "_partition", "_offset", "_corrupt"]
    rows = found.collect()
    assert sorted((row.amount, row.order) for row in rows) == [(number, str(number)) for number in range(40)]
    assert len(places(rows)) == 40
    assert {row.metadata.event_type for row in rows} == {orders}


def test_filters_become_bounds(read, orders, capfd):
    rows = [row for row in read(orders).collect() if row["_partition"] == "1"]
    middle = sorted(row["_offset"] for row in rows)[len(rows) // 2]
    narrowed = read(orders, pushdown="true").where(f"_partition = '1' and _offset > '{middle}'")
    narrowed.explain("formatted")
    plan = capfd.readouterr().out
    assert f"EqualTo(_partition,1), GreaterThan(_offset,{middle})]" in plan
    assert "Condition" not in plan
    assert places(narrowed.collect()) == {each for each in places(rows) if each[1] > middle}


def test_several_event_types_have_their_names_and_the_columns_of_both(read, orders, client):
    other = create_orders(client, schema=schema_of({"order": {"type": "string"}, "weight": {"type": "number"}}))
    publish_orders(client, other, {"order": "a", "weight": 0.5})
    found = read(f"{orders}, {other}").where(f"_event_type = '{other}'")
    [row] = found.collect()
    assert (row["order"], row["amount"], row["weight"], row["_event_type"]) == ("a", None, 0.5, other)


def test_what_does_not_fit_is_corrupt_and_columns_can_be_chosen(registered, server, client):
    name = create_orders(client, schema=schema_of({"order": {"type": "string"}, "amount": {}}))
    publish_orders(client, name, {"order": "a", "amount": "many"}, {"order": "b", "amount": 2})
    reader = registered.read.format("rioni").options(url=server.url, event_type=name)
    rows = reader.schema("amount bigint, _corrupt string").load().collect()
    assert sorted(row.amount for row in rows if row["_corrupt"] is None) == [2]
    assert [json.loads(row["_corrupt"])["order"] for row in rows if row["_corrupt"]] == ["a"]


def test_a_part_is_read_by_offsets_and_times(read, client):
    name = create_orders(client)
    publish_orders(client, name, *({"order": str(number), "amount": number} for number in range(20)))
    rows = read(name, to="2020-01-01T00:00:00Z").collect()
    assert rows == []
    assert read(name, from_="2020-01-01T00:00:00Z").count() == 20
    first = read(name).where("_partition = '0'").orderBy("_offset").first()
    rest = read(name, from_=json.dumps({"0": first["_offset"]}))
    assert rest.count() == 19


@pytest.mark.parametrize("option", ["from_", "to"])
@pytest.mark.parametrize(
    ("offsets", "error"),
    [
        ('{"0": "001-0001-000000000000999999"}', "was the event type created again"),
        ('{"0": "0", "0": "1"}', "must be a JSON object .* Duplicate key"),
        ('{"0": "nowhere"}', "nowhere in partition 0, which is no offset"),
        ('{"0": "BEGIN"}', "BEGIN in partition 0, which is no offset"),
        ('{"0": "0"', "must be a JSON object"),
        ('{"7": "0"}', "partitions that do not exist: 7"),
    ],
)
def test_offsets_that_are_none_or_lie_behind_the_end_are_errors(read, orders, option, offsets, error):
    with pytest.raises(Exception, match=error):
        read(orders, **{option: offsets}).collect()


def test_wrong_options_are_errors(read, orders):
    with pytest.raises(Exception, match="Unknown options: nothing"):
        read(orders, nothing="1")


def test_a_table_is_whole_again_after_a_query_with_a_filter(read, orders):
    table = read(orders)
    assert table.where("_partition = '1'").count() < 40
    assert table.count() == 40


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_the_log_is_a_table(pushdown, registered, server, orders):
    def log():
        options = {"url": server.url, "pushdown": pushdown}
        return registered.read.format("rioni.log").options(**options).load()

    found = log().where(f"kind = 'event-type.created' and resource = 'event-type:{orders}'")
    [entry] = found.collect()
    assert orders in entry.changes
    assert log().where(f"position > {entry.position}").count() == log().count() - entry.position
    before = sum(each.recorded_at < entry.recorded_at for each in log().collect())
    assert log().where(f"recorded_at < '{entry.recorded_at}'").count() == before
