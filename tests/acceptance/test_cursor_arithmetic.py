"""Cursor distances, shifts and lags: consumption contract 3.3."""

import pytest

from tests.acceptance.conftest import event, problem


def cursor(offset, partition="0", **members):
    return {"partition": partition, "offset": offset} | members


@pytest.fixture
def path(client, create, name):
    """An event type with five events in its one partition."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event() for _ in range(5)])
    return f"/event-types/{name}"


def test_distances(client, path):
    pairs = [
        {"initial_cursor": cursor("BEGIN"), "final_cursor": cursor("001-0001-000000000000000004")},
        {"initial_cursor": cursor("3"), "final_cursor": cursor("001-0001--1")},
    ]
    answer = client.post(f"{path}/cursor-distances", json=pairs)
    assert answer.json() == [pairs[0] | {"distance": 5}, pairs[1] | {"distance": -4}]


def test_shifts(client, path):
    answer = client.post(f"{path}/shifted-cursors", json=[cursor("BEGIN", shift=3), cursor("4", shift=-2), cursor("1")])
    assert [each["offset"] for each in answer.json()] == [
        "001-0001-000000000000000002",
        "001-0001-000000000000000002",
        "001-0001-000000000000000001",
    ]


def test_lags(client, path):
    assert client.post(f"{path}/cursors-lag", json=[cursor("1"), cursor("4")]).json() == [
        {
            "partition": "0",
            "oldest_available_offset": "001-0001-000000000000000000",
            "newest_available_offset": "001-0001-000000000000000004",
            "unconsumed_events": lag,
        }
        for lag in (3, 0)
    ]


@pytest.mark.parametrize(
    ("endpoint", "body", "status", "detail"),
    [
        ("shifted-cursors", [cursor("BEGIN", shift=-1)], 422, "Timeline not found"),
        ("shifted-cursors", [cursor("4", shift=1)], 422, "does not exist"),
        ("cursors-lag", [cursor("0", "7")], 422, "Partition not found."),
        ("cursors-lag", [cursor("x")], 422, "invalid offset x for partition 0"),
        ("cursors-lag", [cursor("001-0009-000000000000000000")], 422, "Timeline not found"),
        ("cursors-lag", [{"partition": "0"}], 422, 'Field "[0].offset"'),
        ("cursors-lag", {"partition": "0"}, 400, "must be array"),
        ("cursors-lag", [1], 400, "must be object"),
        (
            "cursor-distances",
            [{"initial_cursor": cursor("0"), "final_cursor": cursor("0", "1")}],
            422,
            "Cursors with different partition.",
        ),
        ("cursor-distances", [{"initial_cursor": cursor("0")}], 422, 'Field "[0].final_cursor.partition"'),
    ],
)
def test_bad_cursors_are_refused(client, path, endpoint, body, status, detail):
    problem(client.post(f"{path}/{endpoint}", json=body), status, detail)


@pytest.mark.parametrize("endpoint", ["cursor-distances", "shifted-cursors", "cursors-lag"])
def test_an_unknown_event_type_is_not_found(client, endpoint):
    problem(client.post(f"/event-types/nope/{endpoint}", json=[]), 404)
