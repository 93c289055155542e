"""`GET /event-types/{name}/consumers` and `/producers`: the clients of an event type.

Source: reference operations#usage.
"""

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.builders import event_type_body
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


pytestmark = pytest.mark.both_modes


ENOUGH_S = 30
"""A timeout that no machine exceeds."""
SEEN = {"client", "last_streamed_at", "last_committed_at"}


def until(ask, holds):
    """Repeat the request until the answer is as expected: activity of another worker is known a second later."""
    answers = []

    def answered():
        answers[:] = [ask()]
        return holds(answers[0])

    wait_until(answered)
    return answers[0]


@pytest.fixture
def ask(client):
    """The answer for a path of an event type."""

    def ask(name, path):
        response = client.get(f"/event-types/{name}/{path}")
        assert response.status_code == 200, response.text
        return response.json()

    return ask


def test_producers_and_their_events_are_counted(client, create, name, ask):
    """Reference operations#producers."""
    create(name)
    assert ask(name, "producers") == {"items": []}
    for count in (1, 2):
        client.post(f"/event-types/{name}/events", json=[event() for _ in range(count)])
    assert client.post(f"/event-types/{name}/events", json=[{}]).status_code == 422
    found = until(lambda: ask(name, "producers")["items"], lambda items: sum(each["events"] for each in items) >= 3)
    assert [(each["client"], each["events"]) for each in found] == [("unauthenticated", 3)]
    assert found[0]["since"] <= found[0]["last_published_at"]


def test_a_new_event_type_of_the_same_name_has_no_producers_yet(client, create, name, ask):
    """Reference operations#activity-records."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    until(lambda: ask(name, "producers")["items"], bool)
    client.delete(f"/event-types/{name}")
    create(name)
    assert ask(name, "producers") == {"items": []}


def test_a_subscription_shows_its_lag_and_its_clients(client, create, subscribe, name, ask):
    """Reference operations#consumers."""
    create(name, **partitions(2), partition_strategy="user_defined")
    subscription = subscribe(name, read_from="begin")
    (before,) = ask(name, "consumers")["subscriptions"]
    assert before["id"] == subscription
    assert (before["streams"], before["clients"]) == (0, [])
    assert before["unconsumed_events"] == 0
    for partition in ("0", "0", "0", "1"):
        client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": partition})])
    with open_stream(client, f"/subscriptions/{subscription}/events", params={"batch_limit": 1}) as stream:
        cursor = stream.filled_batch()["cursor"]
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        client.post(f"/subscriptions/{subscription}/cursors", json={"items": [cursor]}, headers=headers)
        (now,) = until(
            lambda: ask(name, "consumers")["subscriptions"],
            lambda items: (
                items[0]["clients"] and items[0]["clients"][0].keys() == SEEN and items[0]["unconsumed_events"] == 3
            ),
        )
        assert now["streams"] == 1
    assert now["unconsumed_events"] == 3
    lags = {each["partition"]: each["unconsumed_events"] for each in now["partitions"]}
    assert lags == {"0": 3, "1": 1} | {cursor["partition"]: {"0": 2, "1": 0}[cursor["partition"]]}
    assert "consumer_lag_seconds" not in {*now, *now["partitions"][0]}
    (seen,) = now["clients"]
    assert seen["client"] == "unauthenticated"


def test_the_lag_of_a_subscription_is_told_in_seconds_as_by_its_statistics(client, create, subscribe, name, ask):
    """Reference operations#consumers."""
    create(name, **partitions(2), partition_strategy="user_defined")
    subscription = subscribe(name, read_from="begin")
    with open_stream(client, f"/subscriptions/{subscription}/events"):
        pass
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "1"})])
    (one,) = until(
        lambda: ask(name, "consumers?show_time_lag=true")["subscriptions"],
        lambda items: items[0].get("consumer_lag_seconds"),
    )
    ages = {each["partition"]: each["consumer_lag_seconds"] for each in one["partitions"]}
    assert ages == {"0": 0, "1": one["consumer_lag_seconds"]}
    stats = client.get(f"/subscriptions/{subscription}/stats?show_time_lag=true").json()["items"][0]["partitions"]
    assert stats[1]["consumer_lag_seconds"] - ages["1"] in range(ENOUGH_S)
    problem(client.get(f"/event-types/{name}/consumers?show_time_lag=x"), 400, "show_time_lag")


def test_subscriptions_to_other_event_types_are_left_out(create, subscribe, name, ask):
    create(f"{name}.a")
    create(f"{name}.b")
    both, one = subscribe(f"{name}.a", f"{name}.b"), subscribe(f"{name}.b")
    assert [each["id"] for each in ask(f"{name}.a", "consumers")["subscriptions"]] == [both]
    assert {each["id"] for each in ask(f"{name}.b", "consumers")["subscriptions"]} == {both, one}


def test_a_low_level_consumer_is_listed_even_before_it_has_received_events(client, create, name, ask):
    """Reference operations#consumers."""
    create(name)
    assert ask(name, "consumers")["low_level"] == []
    with open_stream(client, f"/event-types/{name}/events") as stream:
        (seen,) = until(lambda: ask(name, "consumers")["low_level"], bool)
        assert (seen["client"], seen["events"]) == ("unauthenticated", 0)
        client.post(f"/event-types/{name}/events", json=[event()])
        assert stream.events(1)
        until(lambda: ask(name, "consumers")["low_level"], lambda items: items[0]["events"] == 1)


@pytest.mark.parametrize("path", ["consumers", "producers"])
def test_the_clients_of_an_unknown_event_type_are_not_found(client, path):
    problem(client.get(f"/event-types/nope/{path}"), 404, 'EventType "nope" does not exist.')


def test_recorded_activity_outlives_the_server(tmp_path, name):
    """Reference operations#activity-records."""

    def producers(running):
        with running.client() as client:
            return client.get(f"/event-types/{name}/producers").json()["items"]

    data = tmp_path / "rioni"
    with running_server(data, "--workers", "1") as running:
        with running.client() as client:
            client.post("/event-types", json=event_type_body(name=name))
            client.post(f"/event-types/{name}/events", json=[event()])
        before = producers(running)
        running.kill()
    with running_server(data, "--workers", "1") as running:
        assert producers(running) == before != []


@pytest.mark.parametrize(("read_from", "lag"), [("begin", 8), ("end", 0), ("cursors", 5)])
def test_the_lag_of_a_subscription_that_was_never_streamed_is_what_it_would_begin_with(
    client, create, subscribe, name, ask, read_from, lag
):
    """Reference subscriptions#unconsumed-events: five events before it is created, three after."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(5)])
    cursors = [{"event_type": name, "partition": "0", "offset": "001-0001-000000000000000002"}]
    subscription = subscribe(
        name, read_from=read_from, **({"initial_cursors": cursors} if read_from == "cursors" else {})
    )
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(3)])
    (one,) = ask(name, "consumers?show_time_lag=true")["subscriptions"]
    assert one["unconsumed_events"] == lag
    assert one["consumer_lag_seconds"] in (range(ENOUGH_S) if lag else [0])
    path = f"/subscriptions/{subscription}/stats"
    (item,) = client.get(f"{path}?show_initial_lag=true").json()["items"]
    assert [each["unconsumed_events"] for each in item["partitions"]] == [lag]
    (item,) = client.get(path).json()["items"]
    assert [each.get("unconsumed_events") for each in item["partitions"]] == [None]
    labels = (
        f'{{consumer_group="default",owning_application="{one["owning_application"]}",subscription="{subscription}"}}'
    )
    gauge = f"rioni_subscription_lag_events{labels}"
    until(lambda: client.get("/metrics").json()["gauges"].get(gauge, {}).get("value"), lambda value: value == lag)
    with open_stream(client, f"/subscriptions/{subscription}/events"):
        (item,) = client.get(path).json()["items"]
    assert [each["unconsumed_events"] for each in item["partitions"]] == [lag]
