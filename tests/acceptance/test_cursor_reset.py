"""`PATCH /subscriptions/{id}/cursors`: reference subscriptions#reset."""

import uuid

import pytest

from rioni.domain.timelines.position import format_offset
from tests.acceptance.conftest import event, problem, rows
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


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


def test_streams_end_with_a_reason_and_reading_continues_behind_the_offset(client, server, filled, name):
    """Reference subscriptions#reset-effects."""
    query = "/events?batch_limit=5&batch_flush_timeout=1&commit_timeout=5"
    with server.client() as other, open_stream(other, filled + query) as stream:
        batch = stream.filled_batch()
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


@pytest.mark.parametrize(
    ("items", "position"),
    [
        ([{"offset": "END"}], 4),
        ([{"timestamp": "2020-01-01T00:00:00Z"}], -1),
        ([{"timestamp": "2020-01-01T00:00:00Z", "shift": 3}], 2),
        ([{"event_type": True, "partition": "0", "offset": "END", "shift": -3}], 1),
        ([{"offset": "BEGIN"}, {"event_type": True, "partition": "0", "offset": "3"}], 3),
    ],
)
def test_a_reset_accepts_all_cursor_specs(client, filled, name, items, position):
    """Reference cursors#accepted-specifications, cursors#all-partitions."""
    items = [item | {"event_type": item.get("event_type") and name} for item in items]
    assert client.patch(f"{filled}/cursors", json={"items": items}).status_code == 204
    (cursor,) = client.get(f"{filled}/cursors").json()["items"]
    assert cursor["offset"] == format_offset(1, position)


def test_without_cursors_the_subscription_is_initialised_and_streams_continue(client, filled):
    assert client.get(f"{filled}/cursors").json() == {"items": []}
    assert client.patch(f"{filled}/cursors", json={"items": []}).status_code == 204
    (cursor,) = client.get(f"{filled}/cursors").json()["items"]
    assert cursor["offset"] == "001-0001--1"


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    rows(
        ("too new", {"offset": "001-0001-000000000000000009"}, 422, "is unavailable as retention"),
        ("unparseable", {"offset": "x"}, 422, "invalid offset x for partition 0"),
        ("unknown partition", {"partition": "7"}, 422, "non existing partition 7"),
        ("foreign event type", {"event_type": "nope"}, 422, "Event type does not belong to subscription: [nope]"),
        ("no offset", {"offset": None}, 422, 'Field "items[0].offset" must not be null'),
        ("no offset, but a shift", {"offset": None, "shift": 1}, 422, 'Field "items[0].offset" must not be null'),
        (
            "offset and time",
            {"timestamp": "2026-11-20T10:00:00Z"},
            422,
            'Field "items[0].timestamp" must not be given together with',
        ),
        (
            "no time",
            {"offset": None, "timestamp": "now"},
            422,
            'Field "items[0].timestamp" must be a valid date-time',
        ),
        ("time of a wrong type", {"offset": None, "timestamp": 1}, 400, "items.0.timestamp must be string or null"),
        ("no partition", {"partition": None}, 422, 'Field "items[0].partition" must not be null'),
        (
            "neither partition nor event type",
            {"partition": None, "event_type": None},
            422,
            'Field "items[0].event_type" must not be null',
        ),
        (
            "no event type",
            {"offset": "END", "event_type": None},
            422,
            'Field "items[0].event_type" must not be null',
        ),
        ("behind the end", {"offset": "END", "shift": 1}, 422, "position that does not exist"),
        ("before the beginning", {"offset": "BEGIN", "shift": -1}, 422, "Timeline not found"),
        ("a shift beyond 64 bits", {"shift": 2**64}, 400, "items.0.shift must be"),
        ("offset of a wrong type", {"offset": 1}, 400, "items.0.offset must be string or null"),
    ),
)
def test_bad_cursors_are_rejected_and_change_nothing(client, filled, name, changes, status, detail):
    """Reference subscriptions#reset-checks."""
    good = {"event_type": name, "partition": "0", "offset": "2"}
    problem(client.patch(f"{filled}/cursors", json={"items": [good | changes]}), status, detail)
    assert client.get(f"{filled}/cursors").json() == {"items": []}


def test_an_unknown_subscription_is_not_found(client):
    """Reference subscriptions#reset-checks."""
    problem(reset(client, f"/subscriptions/{uuid.uuid4()}", "a", "0"), 404)
