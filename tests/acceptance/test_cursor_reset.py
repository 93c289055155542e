"""`PATCH /subscriptions/{id}/cursors`: consumption contract 7.3."""

import uuid

import pytest

from tests.acceptance.conftest import event, problem
from tests.support.server import open_stream


@pytest.fixture
def filled(client, create, subscribe, name):
    """The path of a subscription to five events, from the beginning."""
    create(name)
    events = [event(str(number)) for number in range(5)]
    assert client.post(f"/event-types/{name}/events", json=events).status_code == 200
    return f"/subscriptions/{subscribe(name, read_from='begin')}"


def reset(client, path, name, offset, partition="0"):
    return client.patch(
        f"{path}/cursors", json={"items": [{"event_type": name, "partition": partition, "offset": offset}]}
    )


def test_streams_end_with_a_reason_and_reading_goes_on_behind_the_offset(client, server, filled, name):
    query = "/events?batch_limit=5&batch_flush_timeout=1&commit_timeout=5"
    with server.client() as other, open_stream(other, filled + query) as stream:
        batch = stream.batch()
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        client.post(f"{filled}/cursors", json={"items": [batch["cursor"]]}, headers=headers)
        assert reset(client, filled, name, "001-0001-000000000000000002").status_code == 204
        assert stream.batches()[-1]["info"] == {"debug": "Resetting subscription cursors"}
    with server.client() as other, open_stream(other, filled + query) as stream:
        assert [each["order_id"] for each in stream.events(2)] == ["3", "4"]


def test_a_reset_to_the_beginning_delivers_everything_again(client, server, filled, name):
    assert reset(client, filled, name, "4").status_code == 204
    (cursor,) = client.get(f"{filled}/cursors").json()["items"]
    assert cursor["offset"] == "001-0001-000000000000000004"
    assert reset(client, filled, name, "BEGIN").status_code == 204
    with server.client() as other, open_stream(other, f"{filled}/events?batch_limit=5") as stream:
        assert stream.events(1)[0]["order_id"] == "0"


def test_without_cursors_the_subscription_is_initialised_and_streams_go_on(client, filled):
    assert client.get(f"{filled}/cursors").json() == {"items": []}
    assert client.patch(f"{filled}/cursors", json={"items": []}).status_code == 204
    (cursor,) = client.get(f"{filled}/cursors").json()["items"]
    assert cursor["offset"] == "001-0001--1"


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    [
        ({"offset": "001-0001-000000000000000009"}, 422, "is unavailable as retention"),
        ({"offset": "x"}, 422, "invalid offset x for partition 0"),
        ({"partition": "7"}, 422, "non existing partition 7"),
        ({"event_type": "nope"}, 422, "Event type does not belong to subscription: [nope]"),
        ({"offset": None}, 422, 'Field "items[0].offset" must not be null'),
        ({"offset": 1}, 400, "items.0.offset must be string or null"),
    ],
)
def test_bad_cursors_are_refused_and_change_nothing(client, filled, name, changes, status, detail):
    good = {"event_type": name, "partition": "0", "offset": "2"}
    problem(client.patch(f"{filled}/cursors", json={"items": [good | changes]}), status, detail)
    assert client.get(f"{filled}/cursors").json() == {"items": []}


def test_an_unknown_subscription_is_not_found(client):
    problem(reset(client, f"/subscriptions/{uuid.uuid4()}", "a", "0"), 404)
