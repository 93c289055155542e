"""`/event-types/{name}/partitions`: reference cursors#offset-forms, cursors#one-partition, cursors#partition-list.

Source: reference cursors#partitions.
"""

import json

import pytest

from tests.acceptance.conftest import event, partitions, problem, rows


pytestmark = pytest.mark.both_modes


LAST = "001-0001-000000000000000002"


@pytest.fixture
def filled(client, create, name):
    """An event type with two partitions; the first one holds three events."""
    create(name, partition_strategy="user_defined", **partitions(2))
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "0"}) for _ in range(3)])
    return f"/event-types/{name}/partitions"


def test_partitions_show_their_available_offsets(client, filled):
    """Reference cursors#available-offsets."""
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


def test_with_cursors_partitions_show_the_number_of_unconsumed_events(client, filled):
    """Reference cursors#consumed-cursors."""
    cursors = json.dumps([{"partition": "0", "offset": "001-0001-000000000000000000"}])
    found = client.get(filled, params={"cursors": cursors}).json()
    assert [(each["partition"], each.get("unconsumed_events")) for each in found] == [("1", None), ("0", 2)]
    both = json.dumps([{"partition": "1", "offset": "BEGIN"}, {"partition": "0", "offset": LAST}])
    found = client.get(filled, params={"cursors": both}).json()
    assert [(each["partition"], each["unconsumed_events"]) for each in found] == [("1", 0), ("0", 0)]


@pytest.mark.parametrize(
    ("offset", "lag"),
    rows(
        ("BEGIN", "BEGIN", 3),
        ("begin", "begin", 3),
        ("canonical", LAST, 0),
        ("plain number", "0", 2),
        ("before the first event", "001-0001--1", 3),
    ),
)
def test_the_lag_counts_the_events_behind_an_offset(client, filled, offset, lag):
    found = client.get(f"{filled}/0", params={"consumed_offset": offset}).json()
    assert found["unconsumed_events"] == lag


@pytest.mark.parametrize(
    ("cursors", "detail"),
    rows(
        ("no JSON", "x", "malformed cursors"),
        ("no cursor", "[1]", "malformed cursors"),
        ("no list", "{}", "malformed cursors"),
        ("text", '"01"', "malformed cursors"),
        ("null", "null", "malformed cursors"),
        ("cursors of another type", '[{"partition":["0"],"offset":"0"}]', "malformed cursors"),
        ("no partition", '[{"offset":"0"}]', "partition must not be null"),
        ("no offset", '[{"partition":"0"}]', "offset must not be null"),
        ("empty partition", '[{"partition":"","offset":"0"}]', "partition must not be null"),
        ("empty offset", '[{"partition":"0","offset":""}]', "offset must not be null"),
        (
            "duplicate partition",
            '[{"partition":"0","offset":"0"},{"partition":"0","offset":"1"}]',
            "duplicate partition ids provided in cursors",
        ),
        ("bad offset", '[{"partition":"0","offset":"xer"}]', "invalid offset xer for partition 0"),
        ("unknown partition", '[{"partition":"9","offset":"0"}]', "invalid consumed_offset or partition"),
        (
            "unknown timeline",
            '[{"partition":"0","offset":"001-0007-000000000000000000"}]',
            "invalid consumed_offset or partition",
        ),
    ),
)
def test_bad_cursors_are_rejected(client, filled, cursors, detail):
    """Reference cursors#partition-errors."""
    problem(client.get(filled, params={"cursors": cursors}), 422, detail)


@pytest.mark.parametrize(
    ("path", "query", "status", "detail"),
    rows(
        ("all partitions: unknown event type", "/event-types/nope/partitions", {}, 404, None),
        ("one partition: unknown event type", "/event-types/nope/partitions/0", {}, 404, None),
        ("unknown partition", "{}/2", {}, 404, "partition not found"),
        ("negative partition", "{}/-1", {}, 404, "partition not found"),
        ("partition with leading zero", "{}/00", {}, 404, "partition not found"),
        ("partition that is no number", "{}/x", {}, 404, "partition not found"),
        (
            "offset of an unknown partition",
            "{}/2",
            {"consumed_offset": "0"},
            422,
            "invalid consumed_offset or partition",
        ),
        ("bad offset", "{}/0", {"consumed_offset": "xer"}, 422, "invalid offset xer for partition 0"),
    ),
)
def test_unknown_resources_are_not_found(client, filled, path, query, status, detail):
    """Reference cursors#partition-errors, cursors#partition-ids."""
    problem(client.get(path.format(filled), params=query), status, detail)
