"""The state of the broker through the client."""

import pytest

from rioni.client import BadRequest
from tests.support.waiting import wait_until


def test_the_history_of_metrics_has_a_value_for_each_time(client):
    def found():
        client.monitoring.version()
        history = client.monitoring.history(names=["requests"], step=10, limit=5)
        return history if history.series else None

    history = wait_until(found)
    (series,) = history.series
    assert (series.name, series.labels, history.step, history.matched) == ("requests", {}, 10, 1)
    assert len(series.values) == len(history.times)
    assert client.monitoring.history(subscriptions=["none"]).series == []
    with pytest.raises(BadRequest):
        client.monitoring.history(names=["none"])
