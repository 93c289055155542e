"""Cursor distances, shifts and lags.

Source: reference cursors#distances, cursors#shifted-cursors, cursors#arithmetic-requests, cursors#cursor-arithmetic.
"""

import pytest

from tests.acceptance.conftest import event, problem, rows


def cursor(offset, partition="0", **members):
    return {"partition": partition, "offset": offset} | members


@pytest.fixture
def path(client, create, name):
    """An event type with five events in its one partition."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(5)])
    return f"/event-types/{name}"


def test_distances(client, path):
    """Reference cursors#distances."""
    pairs = [
        {"initial_cursor": cursor("BEGIN"), "final_cursor": cursor("001-0001-000000000000000004")},
        {"initial_cursor": cursor("3"), "final_cursor": cursor("001-0001--1")},
    ]
    answer = client.post(f"{path}/cursor-distances", json=pairs)
    assert answer.json() == [pairs[0] | {"distance": 5}, pairs[1] | {"distance": -4}]


def test_shifts(client, path):
    """Reference cursors#shifted-cursors."""
    answer = client.post(f"{path}/shifted-cursors", json=[cursor("BEGIN", shift=3), cursor("4", shift=-2), cursor("1")])
    assert [each["offset"] for each in answer.json()] == [
        "001-0001-000000000000000002",
        "001-0001-000000000000000002",
        "001-0001-000000000000000001",
    ]


def test_lags(client, path):
    """Reference cursors#lag."""
    assert client.post(f"{path}/cursors-lag", json=[cursor("1"), cursor("4")]).json() == [
        {
            "partition": "0",
            "oldest_available_offset": "001-0001-000000000000000000",
            "newest_available_offset": "001-0001-000000000000000004",
            "unconsumed_events": lag,
        }
        for lag in (3, 0)
    ]


OLD = {"partition": "0", "timestamp": "2020-01-01T00:00:00Z"}
FUTURE = {"partition": "0", "timestamp": "2999-01-01T00:00:00Z"}


def test_begin_end_and_timestamps_are_accepted_as_cursors(client, path):
    """Reference cursors#end, cursors#timestamps, cursors#accepted-specifications."""
    lags = client.post(f"{path}/cursors-lag", json=[cursor("end"), OLD, FUTURE]).json()
    assert [lag["unconsumed_events"] for lag in lags] == [0, 5, 0]
    pairs = [
        {"initial_cursor": cursor("2"), "final_cursor": cursor("END")},
        {"initial_cursor": cursor("END"), "final_cursor": OLD},
    ]
    answer = client.post(f"{path}/cursor-distances", json=pairs).json()
    assert answer == [pairs[0] | {"distance": 2}, pairs[1] | {"distance": -5}]
    places = [cursor("END", shift=-2.0), OLD | {"shift": 5}, FUTURE]
    shifted = client.post(f"{path}/shifted-cursors", json=places).json()
    assert [each["offset"][-1] for each in shifted] == ["2", "4", "4"]


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "detail"),
    rows(
        ("cursor: BEGIN of an unknown partition", "cursors-lag", [cursor("BEGIN", "7")], 422, "Partition not found."),
        ("cursor: bad offset", "cursors-lag", [cursor("x")], 422, "invalid offset x for partition 0"),
        ("cursor: unknown timeline", "cursors-lag", [cursor("001-0009-000000000000000000")], 422, "Timeline not found"),
        ("distances: body is no array", "cursor-distances", {"initial_cursor": cursor("0")}, 400, "must be array"),
        (
            "distances: unknown partition",
            "cursor-distances",
            [{"initial_cursor": cursor("0", "7"), "final_cursor": cursor("0", "7")}],
            422,
            "Partition not found.",
        ),
        (
            "distances: different partitions",
            "cursor-distances",
            [{"initial_cursor": cursor("0"), "final_cursor": cursor("0", "1")}],
            422,
            "Cursors with different partition. Pairs of cursors should have matching partitions.",
        ),
        (
            "distances: missing cursor",
            "cursor-distances",
            [{"initial_cursor": cursor("0")}],
            422,
            'Field "[0].final_cursor.partition"',
        ),
        (
            "distances: unknown timeline",
            "cursor-distances",
            [{"initial_cursor": cursor("0"), "final_cursor": cursor("001-0009-000000000000000000")}],
            422,
            "Timeline not found. It might happen in case the cursor refers to a timeline that has already expired.",
        ),
        ("lag: unknown partition", "cursors-lag", [cursor("0", "7")], 422, "Partition not found."),
        ("lag: missing offset", "cursors-lag", [{"partition": "0"}], 422, 'Field "[0].offset"'),
        ("lag: body is no array", "cursors-lag", {"partition": "0"}, 400, "must be array"),
        ("lag: item is no cursor", "cursors-lag", [1], 400, "must be object"),
        (
            "shifted: before the first timeline",
            "shifted-cursors",
            [cursor("BEGIN", shift=-1)],
            422,
            "Timeline not found",
        ),
        ("shifted: a future position", "shifted-cursors", [cursor("4", shift=1)], 422, "does not exist"),
        ("shifted: unknown partition", "shifted-cursors", [cursor("0", "7", shift=1)], 422, "Partition not found."),
        ("shifted: bad offset", "shifted-cursors", [cursor("x", shift=1)], 422, "invalid offset x for partition 0"),
    ),
)
def test_bad_cursors_are_rejected(client, path, endpoint, body, status, detail):
    """Reference cursors#arithmetic-errors."""
    problem(client.post(f"{path}/{endpoint}", json=body), status, detail)


@pytest.mark.parametrize(
    "endpoint", rows(("7.4", "cursor-distances"), ("7.5", "cursors-lag"), ("7.6", "shifted-cursors"))
)
def test_an_unknown_event_type_is_not_found(client, endpoint):
    """Reference cursors#arithmetic-errors."""
    problem(client.post(f"/event-types/nope/{endpoint}", json=[]), 404)
