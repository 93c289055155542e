"""`GET /subscriptions/{id}/stats`: reference subscriptions#partition-statistics.

Source: reference subscriptions#statistics.
"""

import json
import uuid

import pytest

from rioni.domain.timelines.position import format_offset
from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


UNASSIGNED = {"state": "unassigned", "stream_id": ""}


@pytest.fixture
def stats(client):
    def stats(subscription_id, query=""):
        response = client.get(f"/subscriptions/{subscription_id}/stats{query}")
        assert response.status_code == 200, response.text
        return response.json()["items"]

    return stats


def publish(client, name, partition, count):
    events = [event(metadata={"partition": partition}) for _ in range(count)]
    assert client.post(f"/event-types/{name}/events", json=events).status_code == 200


@pytest.fixture
def two(create, subscribe, name):
    """The id of a subscription to an event type of one partition and one of eight."""
    create(f"{name}.b", **partitions(8), partition_strategy="user_defined")
    create(f"{name}.a", partition_strategy="user_defined")
    return subscribe(f"{name}.b", f"{name}.a", read_from="begin")


def test_a_subscription_that_was_never_read_has_no_lag(stats, two, name):
    """Unconsumed_events absent, event types by name, partitions as strings.

    Source: reference subscriptions#partition-statistics.
    """
    for query in ("", "?show_time_lag=true"):
        assert stats(two, query) == [
            {"event_type": f"{name}.a", "partitions": [{"partition": "0", **UNASSIGNED}]},
            {"event_type": f"{name}.b", "partitions": [{"partition": number, **UNASSIGNED} for number in "01234567"]},
        ]


def test_members_are_in_the_documented_order(client, server, stats, two, name):
    """Reference subscriptions#partition-statistics: every member."""
    body = {"partitions": [{"event_type": f"{name}.a", "partition": "0"}]}
    with server.client() as other, open_stream(other, f"/subscriptions/{two}/events", "POST", json=body) as stream:
        (item, _) = stats(two, "?show_time_lag=true")
    expected = {
        "partition": "0",
        "state": "assigned",
        "unconsumed_events": 0,
        "consumer_lag_seconds": 0,
        "stream_id": stream.stream_id,
        "assignment_type": "direct",
    }
    assert json.dumps(item) == json.dumps({"event_type": f"{name}.a", "partitions": [expected]})


def test_streams_of_both_kinds_are_distinguished(server, stats, two, name):
    """State, stream_id, assignment_type; reassigning is in `test_stream_admission.py`.

    Source: reference subscriptions#partition-statistics.
    """
    body = {"partitions": [{"event_type": f"{name}.a", "partition": "0"}]}
    path = f"/subscriptions/{two}/events"
    with (
        server.client() as one,
        open_stream(one, path, "POST", json=body) as direct,
        server.client() as other,
        open_stream(other, path) as automatic,
    ):
        first, second = stats(two)
    kinds = {(each["stream_id"], each["assignment_type"]) for each in first["partitions"]}
    assert kinds == {(direct.stream_id, "direct")}
    kinds = {(each["stream_id"], each["assignment_type"]) for each in second["partitions"]}
    assert kinds == {(automatic.stream_id, "auto")}


def test_lag_counts_uncommitted_events_even_if_they_were_sent(client, stats, two, name):
    """Reference subscriptions#partition-statistics, subscriptions#unconsumed-events: unconsumed_events."""
    publish(client, f"{name}.a", "0", 5)
    publish(client, f"{name}.b", "2", 2)
    assert client.patch(f"/subscriptions/{two}/cursors", json={"items": []}).status_code == 204
    first, second = stats(two)
    assert first["partitions"] == [{"partition": "0", "unconsumed_events": 5, **UNASSIGNED}]
    assert [each["unconsumed_events"] for each in second["partitions"]] == [0, 0, 2, 0, 0, 0, 0, 0]
    cursor = {"event_type": f"{name}.a", "partition": "0", "offset": format_offset(1, 3)}
    assert client.patch(f"/subscriptions/{two}/cursors", json={"items": [cursor]}).status_code == 204
    assert stats(two)[0]["partitions"][0]["unconsumed_events"] == 1


@pytest.mark.both_modes
def test_time_lag_is_shown_on_request(client, stats, two, name):
    """Reference subscriptions#partition-statistics, subscriptions#time-lag: consumer_lag_seconds."""
    publish(client, f"{name}.a", "0", 1)
    client.patch(f"/subscriptions/{two}/cursors", json={"items": []})
    for query in ("", "?show_time_lag=false"):
        assert "consumer_lag_seconds" not in stats(two, query)[0]["partitions"][0]
    first, second = stats(two, "?show_time_lag=true")
    assert isinstance(first["partitions"][0]["consumer_lag_seconds"], int)
    assert [each["consumer_lag_seconds"] for each in second["partitions"]] == [0] * 8


def test_bad_requests_are_rejected(client, two):
    """Reference subscriptions#partition-statistics: errors."""
    unknown = str(uuid.uuid4())
    problem(client.get(f"/subscriptions/{unknown}/stats"), 404, f'Subscription with id "{unknown}" does not exist')
    problem(client.get(f"/subscriptions/{two}/stats?show_time_lag=x"), 400, "show_time_lag")


def test_a_cursor_beyond_the_last_event_is_reported_instead_of_a_lag_of_0(
    client, server, create, subscribe, name, stats
):
    """A lag of 0 would indicate that all is well, while the next published events would not be delivered.

    Source: reference subscriptions#cursors-beyond-the-end.
    """
    create(name)
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    ahead = {"event_type": name, "partition": "0", "offset": format_offset(1, 9), "cursor_token": ""}
    with server.client() as other, open_stream(other, f"{path}/events") as stream:
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        assert client.post(f"{path}/cursors", json={"items": [ahead]}, headers=headers).status_code == 204
    publish(client, name, "0", 5)
    ((partition,),) = [item["partitions"] for item in stats(path.rpartition("/")[2], "?show_time_lag=true")]
    assert {"unconsumed_events", "consumer_lag_seconds"}.isdisjoint(partition)
    error = (
        f"The committed cursor {ahead['offset']} of event type {name}, partition 0, is beyond the last event, "
        f"{format_offset(1, 4)}. Reset the cursors of the subscription"
    )
    assert partition["cursor_error"] == error
    client.delete(f"{path}/streams/{stream.stream_id}")
    with server.client() as other, open_stream(other, f"{path}/events") as stream:
        assert stream.batches()[-1]["info"]["debug"].endswith(error)
    reset = {"items": [{"event_type": name, "partition": "0", "offset": "BEGIN"}]}
    assert client.patch(f"{path}/cursors", json=reset).status_code == 204
    with server.client() as other, open_stream(other, f"{path}/events") as stream:
        assert len(stream.events(5)) == 5
