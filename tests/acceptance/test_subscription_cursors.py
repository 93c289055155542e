"""`GET` and `POST /subscriptions/{id}/cursors`: reference subscriptions#committed-cursors, subscriptions#commit-checks.

The order of the checks of a commit is in `tests/commands/subscriptions/test_cursors_cursor_commits.py`.

Source: reference subscriptions#cursors.
"""

import json
import uuid

import pytest

from rioni.domain.timelines.position import format_offset
from tests.acceptance.conftest import event, partitions, problem, rows
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


EMPTY = 'Field "items[0].{0}" cursor {0} cannot be empty'


@pytest.fixture
def subscription(client, create, subscribe, name):
    """The path of a subscription to an event type of two partitions."""
    create(name, **partitions(2))
    return f"/subscriptions/{subscribe(name, read_from='begin')}"


@pytest.fixture
def stream(server, subscription):
    with server.client() as other, open_stream(other, f"{subscription}/events?commit_timeout=60") as stream:
        yield stream


@pytest.fixture
def cursor(name):
    return {"partition": "0", "offset": format_offset(1, 100), "event_type": name, "cursor_token": "any"}


@pytest.fixture
def commit(client, subscription, stream):
    def commit(*cursors, **members):
        body = {"items": list(cursors)} | members
        return client.post(f"{subscription}/cursors", json=body, headers={"X-Nakadi-StreamId": stream.stream_id})

    return commit


@pytest.fixture
def committed(client, subscription):
    """The committed offsets of the partitions."""

    def committed():
        items = client.get(f"{subscription}/cursors").json()["items"]
        return {item["partition"]: item["offset"] for item in items}

    return committed


def test_nothing_is_committed_before_a_subscription_is_initialised(client, subscription):
    """Reference subscriptions#creation."""
    assert client.get(f"{subscription}/cursors").content == b'{"items":[]}'


def test_committed_cursors_are_shown_members_in_order(client, subscription, commit, cursor, name):
    """Reference subscriptions#cursor-tokens."""
    assert commit(cursor).status_code == 204
    first, second = (client.get(f"{subscription}/cursors").json()["items"] for _ in range(2))
    tokens = [item["cursor_token"] for item in first + second]
    assert len({uuid.UUID(token) for token in tokens}) == 4
    assert json.dumps(first) == json.dumps(
        [
            {"partition": partition, "offset": offset, "event_type": name, "cursor_token": token}
            for partition, offset, token in (
                ("0", format_offset(1, 100), tokens[0]),
                ("1", "001-0001--1", tokens[1]),
            )
        ]
    )


def test_blocked_clients_read_and_commit_no_cursors(client, subscription, commit, cursor, name):
    path = f"/settings/blacklist/CONSUMER_ET/{name}"
    assert client.put(path).status_code == 204
    try:
        for response in (
            client.get(f"{subscription}/cursors"),
            client.patch(f"{subscription}/cursors", json={"items": []}),
            commit(cursor),
        ):
            problem(response, 403, "Application or subscription is blocked")
    finally:
        client.delete(path)


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_an_unknown_subscription_is_not_found(client, cursor, create, name, method):
    create(name)
    unknown = str(uuid.uuid4())
    path, headers = f"/subscriptions/{unknown}/cursors", {"X-Nakadi-StreamId": unknown}
    body = None if method == "GET" else {"items": [cursor]}
    detail = f'Subscription with id "{unknown}" does not exist'
    problem(client.request(method, path, json=body, headers=headers), 404, detail)


def test_the_header_is_checked_first(client, subscription):
    problem(client.post(f"{subscription}/cursors", content=b"nonsense"), 400, "X-Nakadi-StreamId")


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    rows(
        ("7.2/2 partition null", {"partition": None}, 422, EMPTY.format("partition")),
        ("7.2/2 partition empty", {"partition": ""}, 422, EMPTY.format("partition")),
        ("7.2/2 offset null", {"offset": None}, 422, EMPTY.format("offset")),
        ("7.2/2 offset empty", {"offset": ""}, 422, EMPTY.format("offset")),
        ("7.2/2 event_type", {"event_type": None}, 422, 'Field "items[0].event_type" must not be null'),
        ("7.2/2 cursor_token", {"cursor_token": None}, 422, 'Field "items[0].cursor_token" must not be null'),
        ("7.2/2 wrong type", {"offset": 7}, 400, "items.0.offset must be string or null"),
        ("7.2/3 offset", {"offset": "x"}, 422, "invalid offset x for partition 0"),
        ("7.2/3 event type", {"event_type": "nope"}, 422, 'EventType "nope" does not exist.'),
        ("7.2/3 timeline", {"offset": "001-0009--1"}, 422, "is unavailable as retention time of data elapsed"),
        ("7.2/11 partition", {"partition": "9"}, 422, "non existing partition 9"),
    ),
)
def test_a_bad_cursor_rejects_the_whole_commit(commit, committed, cursor, changes, status, detail):
    before = committed()
    problem(commit(cursor | changes, cursor), status, detail)
    assert committed() == before


def test_cursors_are_required(commit):
    problem(commit(), 422, "Cursors are empty")
    problem(commit(items=None), 422, 'Field "items" must not be null')


def test_the_stream_must_be_open(client, subscription, cursor):
    client.patch(f"{subscription}/cursors", json={"items": []})

    def attempt(stream_id):
        return client.post(
            f"{subscription}/cursors", json={"items": [cursor]}, headers={"X-Nakadi-StreamId": stream_id}
        )

    problem(attempt("x"), 422, "Stream id")
    stranger = str(uuid.uuid4())
    problem(attempt(stranger), 422, f"Session with stream id {stranger} not found")


def test_the_partition_must_be_the_streams_own(client, server, subscription, name, cursor):
    """Reference subscriptions#ownership."""

    def body(partition):
        return {"partitions": [{"event_type": name, "partition": partition}]}

    with (
        server.client() as one,
        open_stream(one, f"{subscription}/events", "POST", json=body("0")) as first,
        server.client() as two,
        open_stream(two, f"{subscription}/events", "POST", json=body("1")),
    ):
        foreign = cursor | {"partition": "1"}
        answer = client.post(
            f"{subscription}/cursors", json={"items": [foreign]}, headers={"X-Nakadi-StreamId": first.stream_id}
        )
        named = f"{{partition='1', offset='{foreign['offset']}', event_type='{name}'}}"
        problem(answer, 422, f"Cursor {named} cannot be committed with stream id {first.stream_id}")


def test_some_cursors_advance_and_some_do_not(commit, committed, cursor):
    """Reference subscriptions#commit-results, subscriptions#commit-order."""
    assert commit(cursor).status_code == 204
    # In another order than that of the answer, and with an additional member.
    positions = (105, 106, 102, 96, 130, 120, 121)
    sent = [{"extra": 1, **dict(reversed(cursor.items())), "offset": format_offset(1, each)} for each in positions]
    response = commit(*sent)
    assert response.status_code == 200
    results = ["committed", "committed", "outdated", "outdated", "committed", "outdated", "outdated"]
    assert json.dumps(response.json()) == json.dumps(
        {
            "items": [
                {"cursor": cursor | {"offset": format_offset(1, position)}, "result": result}
                for position, result in zip(positions, results, strict=True)
            ]
        }
    )
    assert committed() == {"0": format_offset(1, 130), "1": "001-0001--1"}


@pytest.mark.parametrize(
    ("offset", "status", "position"),
    rows(
        ("equal", "100", 200, 100),
        ("BEGIN", "begin", 200, 100),
        ("before", "-1", 200, 100),
        ("a plain number", "101", 204, 101),
        ("never sent", format_offset(1, 10**6), 204, 10**6),
    ),
)
def test_a_cursor_is_committed_if_it_is_ahead(commit, committed, cursor, offset, status, position):
    """Reference subscriptions#commit-results, subscriptions#commits-beyond-sent-events, subscriptions#cursor-tokens."""
    assert commit(cursor).status_code == 204
    response = commit(cursor | {"offset": offset, "cursor_token": ""})
    assert response.status_code == status
    if status == 200:
        expected = {"cursor": cursor | {"offset": offset, "cursor_token": ""}, "result": "outdated"}
        assert response.json() == {"items": [expected]}
    else:
        assert response.content == b""
    assert committed()["0"] == format_offset(1, position)


def test_on_a_new_subscription_committing_begin_is_outdated(commit, cursor):
    """Reference subscriptions#commit-order."""
    assert commit(cursor | {"offset": "BEGIN"}).json()["items"][0]["result"] == "outdated"


def test_committed_events_are_not_sent_again(client, server, create, subscribe, name, cursor):
    """Reference subscriptions#commit."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event(str(number)) for number in range(4)])
    path = f"/subscriptions/{subscribe(name, read_from='begin')}"
    with server.client() as other, open_stream(other, f"{path}/events?batch_limit=1&stream_limit=3") as stream:
        third = [stream.filled_batch()["cursor"] for _ in range(3)][-1]
        assert third["offset"] == format_offset(1, 2)
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        assert client.post(f"{path}/cursors", json={"items": [third]}, headers=headers).status_code == 204
        stream.batches()
    with server.client() as other, open_stream(other, f"{path}/events") as stream:
        assert [each["order_id"] for each in stream.events(1)] == ["3"]
