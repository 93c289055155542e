import pytest

from rioni.cli.doctor.diagnosis import NotLookedAt
from rioni.cli.doctor.metrics import compared


FIRST = """\
# HELP rioni_http_requests_total Requests answered
# TYPE rioni_http_requests_total counter
rioni_http_requests_total{method="GET",route="/a",status="200"} 5.0
rioni_http_requests_total{method="GET",route="/b",status="500"} 7.0
rioni_streams{api="hila"} 3.0
"""
SECOND = """\
rioni_http_requests_total{method="GET",route="/a",status="200"} 8.0
rioni_http_requests_total{method="GET",route="/b",status="500"} 2.0
rioni_http_requests_total{method="GET",route="/c",status="500"} 1.0
"""
NAME = "rioni_http_requests_total"


def test_values_and_their_growth_are_summed_by_labels():
    metrics = compared(FIRST, SECOND, 3.0)
    assert metrics.total(NAME) == 11
    assert metrics.total(NAME, status="500") == 3
    assert [each.growth for each in metrics.all(NAME, status="200")] == [3]
    assert metrics.total("absent") == 0


def test_a_counter_that_began_anew_has_grown_by_all_that_it_has():
    assert sum(each.growth for each in compared(FIRST, SECOND, 3.0).all(NAME, status="500")) == 3


def test_what_are_no_metrics_is_not_looked_at():
    with pytest.raises(NotLookedAt, match="text format"):
        compared("<html>", "<html>", 3.0)
