"""`/event-types/{name}/partitions`: consumption contract 3."""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem


LAST = "001-0001-000000000000000002"


@pytest.fixture
def filled(client, create, name):
    """An event type with two partitions; the first one holds three events."""
    create(name, partition_strategy="user_defined", **partitions(2))
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "0"}) for _ in range(3)])
    return f"/event-types/{name}/partitions"


def test_partitions_tell_what_they_hold(client, filled):
    assert client.get(filled).json() == [
        {
            "partition": "0",
            "oldest_available_offset": "001-0001-000000000000000000",
            "newest_available_offset": LAST,
        },
        {
            "partition": "1",
            "oldest_available_offset": "001-0001-000000000000000000",
            "newest_available_offset": "001-0001--1",
        },
    ]
    assert client.get(f"{filled}/0").json() == client.get(filled).json()[0]


def test_asked_with_cursors_they_tell_what_is_unconsumed(client, filled):
    cursors = json.dumps([{"partition": "0", "offset": "001-0001-000000000000000000"}])
    found = client.get(filled, params={"cursors": cursors}).json()
    assert [(each["partition"], each.get("unconsumed_events")) for each in found] == [("1", None), ("0", 2)]


@pytest.mark.parametrize(("offset", "lag"), [("BEGIN", 3), ("begin", 3), (LAST, 0), ("0", 2), ("001-0001--1", 3)])
def test_the_lag_counts_the_events_behind_an_offset(client, filled, offset, lag):
    found = client.get(f"{filled}/0", params={"consumed_offset": offset}).json()
    assert found["unconsumed_events"] == lag


@pytest.mark.parametrize(
    ("cursors", "detail"),
    [
        ("x", "malformed cursors"),
        ("[1]", "malformed cursors"),
        ('[{"offset":"0"}]', "partition must not be null"),
        ('[{"partition":"0","offset":""}]', "offset must not be null"),
        ('[{"partition":"0","offset":"0"},{"partition":"0","offset":"1"}]', "duplicate partition ids"),
        ('[{"partition":"0","offset":"xer"}]', "invalid offset xer for partition 0"),
        ('[{"partition":"9","offset":"0"}]', "invalid consumed_offset or partition"),
        ('[{"partition":"0","offset":"001-0007-000000000000000000"}]', "invalid consumed_offset or partition"),
    ],
)
def test_bad_cursors_are_refused(client, filled, cursors, detail):
    problem(client.get(filled, params={"cursors": cursors}), 422, detail)


def test_what_does_not_exist_is_not_found(client, filled):
    problem(client.get("/event-types/nope/partitions"), 404)
    for partition in ("2", "-1", "00", "x"):
        problem(client.get(f"{filled}/{partition}"), 404, "partition not found")
    problem(client.get(f"{filled}/2", params={"consumed_offset": "0"}), 422, "invalid consumed_offset or partition")
