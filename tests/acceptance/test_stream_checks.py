"""The order in which streams check their requests: of two mistakes the earlier row of the contract answers."""

import pytest

from tests.acceptance.conftest import problem, rows


UNKNOWN = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
BAD_CURSOR = {"X-Nakadi-Cursors": '[{"partition":"9","offset":"BEGIN"}]'}


@pytest.fixture(scope="module")
def blocked(server):
    """The name of an event type that does not exist and is blocked for consumers."""
    name = "test.blocked-for-streams"
    with server.client() as client:
        assert client.put(f"/settings/blacklist/CONSUMER_ET/{name}").status_code == 204
        yield name
        assert client.delete(f"/settings/blacklist/CONSUMER_ET/{name}").status_code == 204


@pytest.mark.parametrize(
    ("which", "query", "answer"),
    rows(
        ("number before 1", "blocked", "batch_limit=x", ({}, 400, "batch_limit")),
        ("before 2", "blocked", "", ({}, 403, "Application or event type is blocked")),
        ("before 4", "unknown", "", (BAD_CURSOR, 404, "topic not found")),
        ("before 5", "known", "batch_limit=0", (BAD_CURSOR, 412, "non existing partition 9")),
        (
            "stream_limit first",
            "known",
            "stream_limit=1&batch_limit=2&stream_timeout=1",
            ({}, 422, "stream_limit"),
        ),
        ("then stream_timeout", "known", "batch_limit=0&stream_timeout=1", ({}, 422, "stream_timeout can't be")),
        ("then batch_limit", "known", "batch_limit=0", ({}, 422, "batch_limit can't be lower than 1")),
    ),
)
def test_checks_of_a_low_level_stream(client, create, blocked, name, which, query, answer):
    """Reference low-level-streams#checks, low-level-streams#parameter-errors."""
    headers, status, detail = answer
    names = {"blocked": blocked, "unknown": name, "known": name}
    if which == "known":
        create(name)
    problem(client.get(f"/event-types/{names[which]}/events?{query}", headers=headers), status, detail)


@pytest.mark.parametrize(
    ("known", "body", "status", "detail"),
    rows(
        ("parameters before subscription", False, {"batch_limit": 0}, 422, "batch_limit can't be lower than 1"),
        ("subscription before partitions", False, {"partitions": ["9", "9"]}, 404, UNKNOWN),
        ("duplicates before foreign ones", True, {"partitions": ["9", "9"]}, 422, "Duplicated partition specified"),
        ("foreign partitions", True, {"partitions": ["9"]}, 422, "Wrong partitions specified - some partitions"),
        ("commit_timeout too long", True, {"commit_timeout": 61}, 422, "commit_timeout can not be more than 60"),
        ("commit_timeout below 0", True, {"commit_timeout": -1}, 422, "commit_timeout can not be less than 0"),
        ("no window", True, {"max_uncommitted_events": 0}, 422, "max_uncommitted_events"),
        ("stream_limit", True, {"stream_limit": 1, "batch_limit": 2}, 422, "stream_limit can't be lower than"),
    ),
)
def test_checks_of_a_subscriptions_stream(client, create, subscribe, name, known, body, status, detail):
    """Reference streams#checks."""
    create(name)
    subscription_id = subscribe(name) if known else UNKNOWN
    wanted = [{"event_type": name, "partition": each} for each in body.get("partitions", [])]
    answer = client.post(f"/subscriptions/{subscription_id}/events", json=body | {"partitions": wanted})
    problem(answer, status, detail)
