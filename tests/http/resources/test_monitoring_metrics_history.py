"""Steps of the history of metrics: reference operations#metrics-history."""

from types import SimpleNamespace

import falcon
import falcon.testing
import pytest

from rioni.http.metrics.history_table import HistoryTable, Series
from rioni.http.resources.monitoring import MetricsHistoryResource


NOON_MS = 1_767_268_800_000


@pytest.fixture
def ask():
    """Asks for the history of a minute and a half."""
    history = HistoryTable(None, 10)
    for number in range(9):
        values = {Series("requests"): float(number + 1), Series("lag_events", "subscription", "s"): 2.0 * number}
        history.write(NOON_MS + 10_000 * number, values)
    app = falcon.App()
    app.req_options.auto_parse_qs_csv = False
    dependencies = SimpleNamespace(
        metrics=SimpleNamespace(history=history), compute_pool=lambda call, *args, **options: call(*args, **options)
    )
    app.add_route("/", MetricsHistoryResource(dependencies))
    client = falcon.testing.TestClient(app)
    return lambda **params: client.simulate_get("/", params=params).json


def test_without_a_step_every_sample_is_shown(ask):
    found = ask(name="requests")
    assert found["times"][:2] == ["2026-01-01T12:00:00.000Z", "2026-01-01T12:00:10.000Z"]
    assert found["series"] == [{"name": "requests", "labels": {}, "values": [1, 2, 3, 4, 5, 6, 7, 8, 9]}]


def test_a_step_has_the_mean_of_rates_and_the_maximum_of_others(ask):
    found = ask(step=60)
    assert found["times"] == ["2026-01-01T12:00:00.000Z", "2026-01-01T12:01:00.000Z"]
    assert {each["name"]: each["values"] for each in found["series"]} == {
        "requests": [3.5, 8.0],
        "lag_events": [10.0, 16.0],
    }


def test_what_has_no_value_is_null(ask):
    (lag,) = ask(subscription="s")["series"]
    assert lag["labels"] == {"subscription": "s"}
    assert lag["values"][:2] == [None, 2.0]


def test_values_begin_with_a_time(ask):
    assert ask(since="2026-01-01T12:01:15Z")["times"] == ["2026-01-01T12:01:20.000Z"]


def test_totals_and_their_parts_are_chosen_apart(ask):
    assert [each["name"] for each in ask(total="true")["series"]] == ["requests"]
    assert [each["labels"] for each in ask(total="false")["series"]] == [{"subscription": "s"}]


def test_the_largest_come_first(ask):
    assert [each["name"] for each in ask(order="largest")["series"]] == ["lag_events", "requests"]
    assert ask(order="largest", limit=1)["series"][0]["name"] == "lag_events"
