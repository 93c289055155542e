import orjson
import pytest

from rioni.cli.host.demo_flights import AIRLINES, DATASETS, FLIGHTS, PLANES, batches, rows


NOW = "2026-11-20T10:00:00.000Z"


@pytest.fixture(scope="module")
def flights():
    return rows(FLIGHTS)


@pytest.mark.parametrize(("table", "count"), [("airlines", 16), ("airports", 1_458), ("planes", 3_322)])
def test_every_table_is_complete(table, count):
    (dataset,) = (each for each in DATASETS if each.table == table)
    assert len(rows(dataset)) == count


def test_flights_are_complete_and_numbered_by_the_time_of_their_departure(flights):
    assert [flight["number"] for flight in flights] == list(range(336_776))
    assert rows(FLIGHTS, 1_000) == flights[:1_000]
    hours = [flight["time_hour"] for flight in flights]
    assert hours == sorted(hours)


def test_missing_cells_are_null(flights):
    assert any(flight["tailnum"] is None for flight in flights)
    assert any(plane["year"] is None for plane in rows(PLANES))


def test_batches_contain_all_rows_as_events_of_their_category():
    found = list(batches(AIRLINES, rows(AIRLINES), 10, NOW))
    assert [count for count, _ in found] == [10, 6]
    (event, *_) = orjson.loads(found[0][1])
    assert (event["data_type"], event["data_op"], event["metadata"]["occurred_at"]) == ("airlines", "C", NOW)
    ((_, body),) = batches(FLIGHTS, rows(FLIGHTS, 1), 10, NOW)
    (flight,) = orjson.loads(body)
    assert flight["metadata"]["occurred_at"] == flight["time_hour"]
