"""`GET /metrics/history`: reference operations#metrics-history."""

import pytest

from tests.acceptance.conftest import problem
from tests.support.server import running_server
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A separate server, with two workers, whose history is short."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "2") as running:
        yield running


def test_rates_and_requests_of_all_workers_are_shown(client, create, publish, name):
    create(name)
    asked = {"name": "published_events", "event_type": name}

    def shown():
        publish(name, "a")
        return client.get("/metrics/history", params=asked).json()

    # A rate needs two samples.
    found = wait_until(lambda: (answer := shown()) and any(any(each["values"]) for each in answer["series"]) and answer)
    (series,) = found["series"]
    assert (series["name"], series["labels"]) == ("published_events", {"event_type": name})
    assert len(series["values"]) == len(found["times"])
    assert found["matched"] == 1
    every = client.get("/metrics/history", params={"limit": 1, "step": 3_600}).json()
    assert (len(every["series"]), every["step"], len(every["times"])) == (1, 3_600, 1)
    assert every["matched"] > 1
    assert client.get("/metrics/history", params={"name": "requests,server_errors"}).json()["series"]
    assert client.get("/metrics/history", params={"event_type": "none"}).json()["series"] == []
    assert client.get("/metrics/history", params={"since": "2100-01-01T00:00:00Z"}).json()["times"] == []


def test_single_partitions_of_subscriptions_have_a_history(client, create, publish, name):
    create(name)
    body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
    subscription = client.post("/subscriptions", json=body).json()["id"]
    place = {"items": [{"event_type": name, "offset": "BEGIN"}]}
    client.patch(f"/subscriptions/{subscription}/cursors", json=place).raise_for_status()
    publish(name, "a")
    asked = {"subscription": subscription, "name": "partition_lag_events,partition_lag_seconds"}
    labels = {"subscription": subscription, "event_type": name, "partition": "0"}
    # A sample from before the event has a lag of 0.
    wait_until(
        lambda: (
            {"name": "partition_lag_events", "labels": labels, "last": 1}
            in [
                {"name": each["name"], "labels": each["labels"], "last": each["values"][-1]}
                for each in client.get("/metrics/history", params=asked).json()["series"]
            ]
        )
    )
    every = client.get("/metrics/history", params={"total": "true", "limit": 1_000}).json()["series"]
    assert not [each for each in every if each["name"].startswith("partition_")]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("name=none", "unknown series 'none'; the series are published_events"),
        ("step=9", "'step' parameter should have value between 10 and 3600"),
        ("step=x", "step: 'x' is not an integer"),
        ("limit=0", "'limit' parameter should have value between 1 and 1000"),
        ("order=best", "order: 'best' is not one of name, largest"),
        ("total=perhaps", "total"),
        ("since=yesterday", "since: 'yesterday' is not an RFC 3339 time"),
    ],
)
def test_invalid_parameters_are_rejected(client, query, detail):
    problem(client.get(f"/metrics/history?{query}"), 400, detail)
