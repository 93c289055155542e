"""`/metrics` shows the lags that `/stats` says: reference operations#lag-metrics."""

import pytest

from tests.support.server import PROMETHEUS, open_stream
from tests.support.waiting import wait_until


pytestmark = pytest.mark.both_modes


@pytest.fixture
def shown(client):
    """A metric of a subscription, on the worker or node that answers; None if it is not shown."""

    def shown(subscription, what):
        for line in client.get("/metrics", headers=PROMETHEUS).text.splitlines():
            if line.startswith(f"rioni_subscription_lag_{what}{{") and f'"{subscription}"' in line:
                return float(line.rpartition(" ")[2])
        return None

    return shown


@pytest.fixture
def unconsumed(client):
    def unconsumed(subscription):
        (item,) = client.get(f"/subscriptions/{subscription}/stats").json()["items"]
        return sum(each.get("unconsumed_events", 0) for each in item["partitions"])

    return unconsumed


def everywhere(condition):
    """Wait until several answers in a row, of all workers and nodes, are as expected."""
    wait_until(lambda: all(condition() for _ in range(6)))


def test_lags_follow_publishing_commits_and_deletion(client, create, subscribe, publish, name, shown, unconsumed):
    create(name)
    subscription = subscribe(name, read_from="begin")
    publish(name, *"abc")
    everywhere(lambda: shown(subscription, "events") == 3)
    with open_stream(client, f"/subscriptions/{subscription}/events", params={"batch_limit": 2}) as stream:
        cursor = stream.filled_batch()["cursor"]
        everywhere(lambda: shown(subscription, "events") == 3)
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        client.post(f"/subscriptions/{subscription}/cursors", json={"items": [cursor]}, headers=headers)
        left = unconsumed(subscription)
        assert left < 3
        everywhere(lambda: shown(subscription, "events") == left)
    publish(name, "d", "e")
    everywhere(lambda: shown(subscription, "events") == left + 2)
    everywhere(lambda: shown(subscription, "seconds") >= 1)
    assert client.delete(f"/subscriptions/{subscription}").status_code == 204
    everywhere(lambda: shown(subscription, "events") is None)


def test_the_labels_name_owner_and_consumer_group(client, create, subscribe, publish, name):
    create(name)
    subscription = subscribe(name, owning_application=name, consumer_group="group", read_from="begin")
    publish(name, "a")
    labels = f'consumer_group="group",owning_application="{name}",subscription="{subscription}"'
    with open_stream(client, f"/subscriptions/{subscription}/events") as stream:
        stream.filled_batch()
        everywhere(lambda: f"rioni_subscription_lag_events{{{labels}}}" in client.get("/metrics").json()["gauges"])
