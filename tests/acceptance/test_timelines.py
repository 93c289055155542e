"""Timelines and the number of partitions.

Source: reference timelines#count-change, timelines#timeline-model, timelines#count-effects,
timelines#model-and-switches, timelines#partition-count.
"""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


def offset(order, position):
    return f"001-{order:04x}--1" if position == -1 else f"001-{order:04x}-{position:018d}"


def cursors(**places):
    return {"X-Nakadi-Cursors": json.dumps([{"partition": p[1:], "offset": o} for p, o in places.items()])}


@pytest.fixture
def switch(client):
    def switch(name, storage_id="default"):
        response = client.post(f"/event-types/{name}/timelines", json={"storage_id": storage_id})
        assert response.status_code == 201, response.text
        assert response.content == b""

    return switch


@pytest.fixture
def history(create, publish, switch, name):
    """Two events, three switches, one event, two switches, two events."""
    create(name)
    publish(name, "0", "1")
    for _ in range(3):
        switch(name)
    publish(name, "2")
    for _ in range(2):
        switch(name)
    publish(name, "3", "4")
    return name


PLACES = [(1, 0), (1, 1), (4, 0), (6, 0), (6, 1)]


def test_timelines_are_listed_by_order(client, create, publish, switch, name):
    """Reference timelines#timeline-list."""
    create(name, **partitions(2), partition_strategy="user_defined")
    (only,) = client.get(f"/event-types/{name}/timelines").json()
    assert only | {"id": "", "topic": "", "created_at": "", "switched_at": ""} == {
        "id": "",
        "event_type": name,
        "order": 1,
        "storage_id": "default",
        "topic": "",
        "created_at": "",
        "switched_at": "",
        "cleaned_up_at": None,
        "latest_position": None,
    }
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "1"})])
    switch(name)
    old, new = client.get(f"/event-types/{name}/timelines").json()
    assert (old["order"], old["latest_position"]) == (1, {"offsets": [-1, 0]})
    assert old["cleaned_up_at"] > new["switched_at"]
    assert (new["order"], new["latest_position"], new["cleaned_up_at"]) == (2, None, None)
    assert new["topic"] != old["topic"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"storage_id": "nope"}, 422, "No storage with id: nope"),
        ({}, 422, "storage_id"),
        ({"storage_id": 1}, 400, "storage_id"),
    ],
)
def test_an_invalid_timeline_is_rejected(client, create, name, body, status, detail):
    """Reference timelines#creation-errors."""
    problem(client.post(f"/event-types/{create(name)}/timelines", json=body), status, detail)
    assert len(client.get(f"/event-types/{name}/timelines").json()) == 1


def test_unknown_and_compacted_event_types_have_no_timelines_to_switch(client, create, name):
    """Reference timelines#creation-errors, timelines#timeline-list."""
    detail = 'EventType "nope" does not exist'
    unknown = client.get("/event-types/nope/timelines")
    assert problem(unknown, 404)["detail"] == detail
    unknown = client.post("/event-types/nope/timelines", json={"storage_id": "default"})
    assert problem(unknown, 404)["detail"] == detail
    create(name, cleanup_policy="compact", partition_strategy="random")
    problem(
        client.post(f"/event-types/{name}/timelines", json={"storage_id": "default"}),
        422,
        "It is not possible to create a timeline for event type with 'compact' cleanup_policy",
    )


def test_low_level_streams_read_across_timelines(client, history):
    """Reference timelines#reading-across-timelines, cursors#positions, cursors#partition-order."""
    path = f"/event-types/{history}/events"
    with open_stream(client, path, headers=cursors(p0="BEGIN"), params={"stream_limit": 5}) as stream:
        batches = stream.batches()
    assert [batch["cursor"]["offset"] for batch in batches] == [offset(*place) for place in PLACES]
    assert [each["order_id"] for batch in batches for each in batch["events"]] == list("01234")
    for index, place in enumerate(PLACES[:-1]):
        with open_stream(client, path, headers=cursors(p0=offset(*place)), params={"stream_limit": 1}) as stream:
            assert stream.filled_batch()["cursor"]["offset"] == offset(*PLACES[index + 1])


@pytest.mark.parametrize("place", [(1, 4), (2, 0), (4, 1), (7, -1)])
def test_offsets_that_no_timeline_has_are_412(client, history, place):
    """Reference low-level-streams#cursor-errors."""
    response = client.get(f"/event-types/{history}/events", headers=cursors(p0=offset(*place)))
    problem(response, 412, f"offset {place[1]} for partition 0 event type {history} is unavailable")


def test_partitions_show_the_first_and_the_last_event_of_all_timelines(client, history, switch):
    """Reference cursors#available-offsets."""
    expected = {
        "partition": "0",
        "oldest_available_offset": offset(1, 0),
        "newest_available_offset": offset(6, 1),
    }
    assert client.get(f"/event-types/{history}/partitions").json() == [expected]
    switch(history)
    assert client.get(f"/event-types/{history}/partitions/0").json() == expected
    asked = client.get(f"/event-types/{history}/partitions/0", params={"consumed_offset": offset(1, 1)}).json()
    assert asked == expected | {"unconsumed_events": 3}


def test_cursor_arithmetic_crosses_timelines(client, history):
    """Reference timelines#reading-across-timelines, cursors#timeline-ends, cursors#shifts."""
    first, last = ({"partition": "0", "offset": offset(*place)} for place in (PLACES[0], PLACES[-1]))
    pairs = [{"initial_cursor": first, "final_cursor": last}, {"initial_cursor": last, "final_cursor": first}]
    answered = client.post(f"/event-types/{history}/cursor-distances", json=pairs).json()
    assert [each["distance"] for each in answered] == [4, -4]
    shifted = [first | {"shift": 2}, last | {"shift": -4}, last | {"shift": -2}, first | {"shift": 1}]
    answered = client.post(f"/event-types/{history}/shifted-cursors", json=shifted).json()
    # The end of a closed timeline is the beginning of the next one.
    assert [each["offset"] for each in answered] == [offset(*place) for place in ((6, -1), (1, 0), (6, -1), (4, -1))]
    for shift in (5, -2):
        problem(client.post(f"/event-types/{history}/shifted-cursors", json=[first | {"shift": shift}]), 422)
    lag = client.post(f"/event-types/{history}/cursors-lag", json=[first]).json()
    assert lag[0]["unconsumed_events"] == 4


def test_subscriptions_read_and_commit_across_timelines(client, history, subscribe, switch, publish):
    """Reference timelines#reading-across-timelines."""
    subscription = subscribe(history, read_from="begin")
    path = f"/subscriptions/{subscription}"
    with open_stream(client, f"{path}/events") as stream:
        last = [stream.filled_batch() for _ in PLACES][-1]
        assert last["cursor"]["offset"] == offset(*PLACES[-1])
        switch(history)
        publish(history, "5")
        new = stream.filled_batch()
        assert new["cursor"]["offset"] == offset(7, 0)
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        old = last["cursor"] | {"offset": offset(4, 0)}
        assert client.post(f"{path}/cursors", json={"items": [old]}, headers=headers).status_code == 204
        (item,) = client.get(f"{path}/stats").json()["items"]
        assert item["partitions"][0]["unconsumed_events"] == 3
        assert client.post(f"{path}/cursors", json={"items": [new["cursor"]]}, headers=headers).status_code == 204
        assert client.post(f"{path}/cursors", json={"items": [old]}, headers=headers).status_code == 200
    assert client.get(f"{path}/stats").json()["items"][0]["partitions"][0]["unconsumed_events"] == 0


# --- the number of partitions ---


def test_an_event_type_gets_more_partitions(client, create, switch, name):
    create(name)
    switch(name)
    for method in ("PUT", "POST", "PUT"):
        response = client.request(method, f"/event-types/{name}/partition-count", json={"partition_count": 3})
        assert (response.status_code, response.content) == (204, b"")
    assert [each["partition"] for each in client.get(f"/event-types/{name}/partitions").json()] == ["0", "1", "2"]
    statistic = client.get(f"/event-types/{name}").json()["default_statistic"]
    assert statistic == {"messages_per_minute": 1, "message_size": 1, "read_parallelism": 3, "write_parallelism": 3}
    old = client.get(f"/event-types/{name}/timelines").json()[0]
    assert old["latest_position"] == {"offsets": [-1, -1, -1]}


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"partition_count": 1}, 422, "Number of partitions can not decrease"),
        ({"partition_count": 9}, 422, "Number of partitions"),
        ({"partition_count": None}, 422, "partition_count"),
        ({}, 422, "partition_count"),
        ({"partition_count": "3"}, 400, "partition_count"),
    ],
)
def test_an_invalid_number_of_partitions_is_rejected(client, create, name, body, status, detail):
    """Reference timelines#count-checks."""
    create(name, **partitions(2))
    problem(client.put(f"/event-types/{name}/partition-count", json=body), status, detail)
    assert len(client.get(f"/event-types/{name}/partitions").json()) == 2


def test_repartitioning_an_unknown_event_type_is_not_found(client):
    problem(client.put("/event-types/nope/partition-count", json={"partition_count": 2}), 404)


def test_streams_of_subscriptions_end_and_their_clients_reconnect_for_new_partitions(client, create, subscribe, name):
    """Reference timelines#subscriptions."""
    create(name, partition_strategy="user_defined")
    subscription = subscribe(name)  # reads from the end
    path = f"/subscriptions/{subscription}/events"
    with open_stream(client, path, params={"batch_flush_timeout": 1}) as stream:
        stream.batch()
        client.put(f"/event-types/{name}/partition-count", json={"partition_count": 2})
        published = [event("new", metadata={"partition": "1"})]
        assert client.post(f"/event-types/{name}/events", json=published).status_code == 200
        assert stream.batches()[-1]["info"] == {"debug": "Resetting subscription cursors"}
    with open_stream(client, path) as stream:
        batch = stream.filled_batch()
    assert (batch["cursor"]["partition"], batch["cursor"]["offset"]) == ("1", offset(1, 0))
