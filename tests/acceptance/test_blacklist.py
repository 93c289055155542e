"""Blocked clients and event types publish and consume nothing, from the next request on.

Source: reference low-level-streams#checks, subscriptions#commit, streams#checks, operations#blocked-consumers,
settings-and-storages#blacklist, operations#blocking.
"""

import contextlib

import pytest

from tests.acceptance.conftest import event, problem, rows
from tests.support.builders import event_type_body
from tests.support.server import open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens


UNKNOWN = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
FIRST, SECOND, OTHER = "test.first", "test.second", "test.other"
STREAM = {"X-Nakadi-StreamId": UNKNOWN}
STREAMING, CURSORS = "Application or event type is blocked", "Application or subscription is blocked"
APP, ET = "CONSUMER_APP/noisy", f"CONSUMER_ET/{SECOND}"


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A client of a server with two workers, three event types and a subscription to two of them; and its id."""
    folder = tmp_path_factory.mktemp("blacklist")
    uids = ("stups_nakadi", "noisy", "quiet")
    write_tokens(folder / "tokens.toml", {uid: {"uid": uid, "realm": "services"} for uid in uids})
    environment = {"RIONI_AUTH_MODE": "basic", **ADMINISTRATOR, "RIONI_AUTH_TOKENS": str(folder / "tokens.toml")}
    with (
        running_server(folder / "data", "--workers", "2", environment=environment) as server,
        contextlib.ExitStack() as s,
    ):
        client = s.enter_context(server.client())
        for name in (FIRST, SECOND, OTHER):
            body = event_type_body(name=name)
            assert client.post("/event-types", json=body, headers=bearer("quiet")).status_code == 201
        body = {"owning_application": "quiet", "event_types": [FIRST, SECOND]}
        yield client, client.post("/subscriptions", json=body, headers=bearer("quiet")).json()["id"]


@contextlib.contextmanager
def blocked(client, entry):
    """Block a client or an event type until the block ends."""
    path, admin = f"/settings/blacklist/{entry}", bearer("stups_nakadi")
    assert client.put(path, headers=admin).status_code == 204
    try:
        yield
    finally:
        assert client.delete(path, headers=admin).status_code == 204


def cursors(name):
    return {"items": [{"event_type": name, "partition": "0", "offset": "0", "cursor_token": ""}]}


REQUESTS = {
    "low-level stream": ("GET", f"/event-types/{SECOND}/events", None),
    "low-level stream of nothing": ("GET", "/event-types/nope/events", None),
    "low-level stream of another event type": ("GET", f"/event-types/{OTHER}/events?batch_limit=0", None),
    "stream": ("GET", "/subscriptions/{id}/events", None),
    "stream with a body": ("POST", "/subscriptions/{id}/events", {}),
    "stream of nothing": ("GET", f"/subscriptions/{UNKNOWN}/events", None),
    "cursors": ("GET", "/subscriptions/{id}/cursors", None),
    "commit": ("POST", "/subscriptions/{id}/cursors", cursors(FIRST)),
    "commit to nothing": ("POST", f"/subscriptions/{UNKNOWN}/cursors", cursors(FIRST)),
    "reset": ("PATCH", "/subscriptions/{id}/cursors", {"items": []}),
    "publish": ("POST", f"/event-types/{SECOND}/events", [event()]),
    "publish to another event type": ("POST", f"/event-types/{OTHER}/events", [event()]),
}


def ask(client, subscription_id, what, token):
    method, path, body = REQUESTS[what]
    return client.request(method, path.format(id=subscription_id), json=body, headers=bearer(token) | STREAM)


@pytest.mark.parametrize(
    ("entry", "what", "token", "status", "detail"),
    rows(
        ("low-level stream: application", APP, "low-level stream", "noisy", 403, STREAMING),
        ("low-level stream: application, before all else", APP, "low-level stream of nothing", "noisy", 403, STREAMING),
        ("low-level stream: event type", ET, "low-level stream", "quiet", 403, STREAMING),
        ("low-level stream: another one", ET, "low-level stream of another event type", "noisy", 422, "batch_limit"),
        ("stream: application", APP, "stream", "noisy", 403, STREAMING),
        ("stream: application, POST", APP, "stream with a body", "noisy", 403, STREAMING),
        ("stream: application, before the subscription", APP, "stream of nothing", "noisy", 403, STREAMING),
        ("stream: any event type", ET, "stream", "quiet", 403, STREAMING),
        ("cursors: application", APP, "cursors", "noisy", 403, CURSORS),
        ("cursors: any event type", ET, "cursors", "quiet", 403, CURSORS),
        ("commit: application", APP, "commit", "noisy", 403, CURSORS),
        ("commit: before the subscription is looked up", APP, "commit to nothing", "noisy", 403, CURSORS),
        ("commit: any event type", ET, "commit", "quiet", 403, CURSORS),
        ("commit: not blocked", APP, "commit to nothing", "quiet", 404, UNKNOWN),
        ("reset: application", APP, "reset", "noisy", 403, CURSORS),
        ("reset: any event type", ET, "reset", "quiet", 403, CURSORS),
        ("reset: not blocked", APP, "reset", "quiet", 204, ""),
        ("PRODUCER_APP", "PRODUCER_APP/noisy", "publish", "noisy", 403, STREAMING),
        ("PRODUCER_APP, another one", "PRODUCER_APP/noisy", "publish", "quiet", 200, ""),
        ("PRODUCER_ET", f"PRODUCER_ET/{SECOND}", "publish", "quiet", 403, STREAMING),
        ("PRODUCER_ET, another one", f"PRODUCER_ET/{SECOND}", "publish to another event type", "quiet", 200, ""),
        ("a blocked consumer may publish", APP, "publish", "noisy", 200, ""),
        ("a blocked producer may consume", "PRODUCER_APP/noisy", "cursors", "noisy", 200, ""),
    ),
)  # fmt: skip
def test_blocked_requests_are_rejected(asked, entry, what, token, status, detail):
    """Reference settings-and-storages#blacklist-types."""
    client, subscription_id = asked
    with blocked(client, entry):
        # More than once: every worker must know it.
        for _ in range(3):
            answer = ask(client, subscription_id, what, token)
            assert answer.status_code == status, answer.text
            if status >= 400:
                problem(answer, status, detail)


@pytest.mark.parametrize(
    ("entry", "ends"),
    rows(("CONSUMER_APP", APP, {"noisy"}), ("CONSUMER_ET", ET, {"noisy", "quiet"})),
)
def test_running_streams_end_at_once_with_the_reason(asked, entry, ends):
    """Reference low-level-streams#flushing, streams#end-reasons: those of a subscription, and low-level ones."""
    client, _ = asked
    body = {"owning_application": "quiet", "event_types": [FIRST, SECOND], "consumer_group": entry}
    subscription_id = client.post("/subscriptions", json=body, headers=bearer("quiet")).json()["id"]
    wait = "?batch_flush_timeout=30"
    paths = {"noisy": f"/event-types/{SECOND}/events{wait}", "quiet": f"/subscriptions/{subscription_id}/events{wait}"}
    with contextlib.ExitStack() as stack:
        streams = {
            token: stack.enter_context(open_stream(client, path, headers=bearer(token)))
            for token, path in paths.items()
        }
        with blocked(client, entry):
            for token in ends:
                assert streams[token].batches()[-1]["info"] == {"debug": "Consumption is blocked"}
        for token in streams.keys() - ends:
            publish = client.post(f"/event-types/{SECOND}/events", json=[event("more")], headers=bearer("quiet"))
            assert publish.status_code == 200
            assert streams[token].events(1)[0]["order_id"] == "more"


@pytest.mark.parametrize(
    ("kind", "side", "member"),
    rows(
        ("CONSUMER_APP", "CONSUMER_APP", "consumers", "apps"),
        ("CONSUMER_ET", "CONSUMER_ET", "consumers", "event_types"),
        ("PRODUCER_APP", "PRODUCER_APP", "producers", "apps"),
        ("PRODUCER_ET", "PRODUCER_ET", "producers", "event_types"),
    ),
)
def test_blacklist_entries_are_listed_by_kind(asked, kind, side, member):
    """Reference settings-and-storages#get-blacklist."""
    client, _ = asked
    empty = {"producers": {"event_types": [], "apps": []}, "consumers": {"event_types": [], "apps": []}}
    with blocked(client, f"{kind}/bob"):
        listed = client.get("/settings/blacklist", headers=bearer("stups_nakadi")).json()
        assert listed == empty | {side: empty[side] | {member: ["bob"]}}
    assert client.get("/settings/blacklist", headers=bearer("stups_nakadi")).json() == empty
    problem(client.get("/settings/blacklist", headers=bearer("quiet")), 403, "Admin privileges are required")
