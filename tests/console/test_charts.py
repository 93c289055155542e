"""Charts and sparklines, without a browser."""

import re

import pytest

from rioni.console.charts import (
    BYTE_RATE,
    COUNT,
    DURATION,
    RATE,
    Chart,
    ChartLine,
    amount,
    charts,
    drawing,
    line_names,
    partition_sparklines,
    sparkline,
    sparklines,
)
from rioni.console.pages.page import Visit


TIMES = [f"2026-11-20T10:00:{second:02}.000Z" for second in (0, 20, 40)]
LAG = Chart("Unconsumed", COUNT, [ChartLine("lag_events", "events", "s")])


class History:
    """Answers requests for the history of metrics."""

    def __init__(self, *series):
        self.answer = {"times": TIMES, "series": series}
        self.asked = None

    def attempt(self, path, **params):
        assert path == "/metrics/history"
        self.asked = params
        return self.answer


def series(name, values, **labels):
    return {"name": name, "labels": labels, "values": values}


def visit(history, as_of=None):
    return Visit(api=history, path={}, params={}, as_of=as_of)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, RATE, "-"),
        (0.0, RATE, "0 /s"),
        (0.256, RATE, "0.26 /s"),
        (3.14, RATE, "3.1 /s"),
        (12_345.6, RATE, "12,346 /s"),
        (7.0, COUNT, "7"),
        (999.4, BYTE_RATE, "999 B/s"),
        (999.6, BYTE_RATE, "1 kB/s"),
        (12_340_000, BYTE_RATE, "12.3 MB/s"),
        (0.0, DURATION, "0 s"),
        (0.00412, DURATION, "4.12 ms"),
        (90, DURATION, "90 s"),
        (150, DURATION, "2.5 min"),
        (7_200, DURATION, "2 h"),
        (200_000, DURATION, "2.31 d"),
    ],
)
def test_values_are_written_with_three_digits_and_a_unit(value, unit, text):
    assert amount(value, unit) == text


def test_a_series_begins_at_zero_and_what_has_none_was_zero():
    history = History(series("lag_events", [None, 3, 4], subscription="s"))
    (found, other) = charts(visit(history), [LAG, Chart("Behind", DURATION, [ChartLine("lag_seconds", "age", "s")])])
    assert found["lines"][0]["values"] == [0, 3, 4]
    assert other["lines"][0]["values"] == [0, 0, 0]
    assert (found["times"], found["query"], found["title"]) == (TIMES, "step=20&limit=200", "Unconsumed")


def test_an_unknown_duration_is_a_gap():
    history = History(series("publish_seconds", [None, 0.1, None], quantile="0.99"))
    (found,) = charts(
        visit(history), [Chart("Takes", DURATION, [ChartLine("publish_seconds", "99th percentile", "0.99")])]
    )
    assert found["lines"][0]["values"] == [None, 0.1, None]


def test_a_refused_request_is_the_problem():
    history = History()
    history.answer = {"problem": {"status": 403}}
    assert charts(visit(history), [LAG]) == history.answer
    assert sparklines(visit(history), "lag_events", "subscription", ["s"]) == {}


def test_sparklines_are_one_request_for_all_rows_and_none_for_the_past():
    history = History(series("lag_events", [None, 1, 2], subscription="b"))
    assert sparklines(visit(history), "lag_events", "subscription", ["a", "b"]) == {"b": [0, 1, 2]}
    assert history.asked["subscription"] == "a,b"
    history.asked = None
    assert sparklines(visit(history, "7"), "lag_events", "subscription", ["a"]) == {}
    assert sparklines(visit(history), "lag_events", "subscription", []) == {}
    assert history.asked is None


def test_a_drawing_is_interrupted_where_nothing_is_known():
    history = History(series("publish_seconds", [1, 2, None, 4], quantile="0.5"))
    (found,) = charts(visit(history), [Chart("Takes", DURATION, [ChartLine("publish_seconds", "median", "0.5")])])
    # A value between two gaps is a dot: a line of one place would not be seen.
    assert re.findall(r'<path class="([^"]*)" d="([^"]*)"', drawing(found)) == [
        ("line-0", "M0 77.27L33.33 54.55"),
        ("line-0 dot", "M100 9.091h0"),
    ]
    assert 'aria-label="Takes, last hour: now 4 s, at most 4 s"' in drawing(found)
    assert sparkline([0, 0], RATE, "Events").count("<path") == 1


def test_names_are_escaped():
    hostile = '"><script>ran()</script>'
    assert "<script>" not in sparkline([1, 2], RATE, hostile)
    assert "<script>" not in drawing({"title": hostile, "unit": RATE, "lines": [{"values": [1, 2]}]})
    assert (
        line_names({"lines": [ChartLine("lag_events", "events", "s")._asdict()]})
        == '[{"name":"lag_events","value":"s"}]'
    )


def test_partitions_have_sparklines_by_event_type_and_number():
    labels = {"subscription": "s", "event_type": "a", "partition": "7"}
    history = History(
        series("partition_lag_events", [None, 3], **labels), series("partition_lag_seconds", [1, 2], **labels)
    )
    found = partition_sparklines(visit(history), "s")
    assert found == {"partition_lag_events": {"a/7": [0, 3]}, "partition_lag_seconds": {"a/7": [1, 2]}}
    assert history.asked["subscription"] == "s"
