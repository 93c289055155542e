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


def test_nodes_have_the_workers_that_reported(client):
    (node,) = wait_until(client.monitoring.nodes)
    assert node.port == int(client.url.rpartition(":")[2])
    assert node.version == client.monitoring.version()
    (worker,) = node.workers
    assert (worker.number, node.configured_workers) == (0, 1)
    assert worker.started_at <= worker.reported_at
