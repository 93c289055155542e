"""The transport when a broker refuses, breaks off or asks to wait, or when another server answers."""

import asyncio
import re
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import msgspec
import pytest

from rioni.client import (
    ClientError,
    Conflict,
    ConnectionFailed,
    EventType,
    NotFound,
    PreconditionFailed,
    Problem,
    PublishingFailed,
    Schema,
    ServerError,
    Storage,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
)
from tests.support.scripted_server import DROP, Answer, scripted_server
from tests.support.waiting import WAIT_S, wait_until


OK = Answer(200, [])
EVENTS = "/event-types/a/events"
AT_ONCE = {"Retry-After": "0"}


@pytest.fixture
def server():
    # Each test has its own: a request that the test before did not wait for may still come.
    with scripted_server() as server:
        server.script(OK)
        yield server


@pytest.fixture
def scripted(make_client, server):
    """A client of the scripted server."""
    with make_client(server.url, token="secret", attempts=3) as client:
        yield client


def test_a_request_is_made_again_as_often_as_allowed(scripted, server):
    server.script(Answer(503, {}, AT_ONCE), DROP, OK)
    assert scripted.storages.list() == []
    server.script(Answer(503, {"detail": "overloaded"}, AT_ONCE))
    with pytest.raises(Unavailable, match="overloaded"):
        scripted.storages.list()
    assert len(server.requests) == 3


UNKNOWN = Answer(503, {"detail": "The outcome is unknown"}, AT_ONCE)
READ_ONLY = Answer(503, {"detail": "Read-only"}, AT_ONCE)
CONFLICT, GONE = Answer(409, {"title": "Conflict"}), Answer(404, {"title": "Not Found", "status": 404})
WANTED = EventType(name="a", owning_application="b", schema=Schema.json({}))
STORAGE = Storage(id="s", storage_type="kafka", kafka_configuration={"bootstrap_servers": "k:9092"})


@pytest.mark.parametrize("unknown", [DROP, UNKNOWN, Answer(502, b"<html>")], ids=["broken", "503", "502"])
@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.timelines.create("a", "s"),
        lambda client: client.subscriptions.redrive("i", force=True),
        lambda client: client.request("POST", "/event-types"),
        lambda client: client.request("PATCH", "/event-types"),
    ],
    ids=["timeline", "redrive", "post", "patch"],
)
def test_what_the_broker_may_have_done_is_not_asked_for_twice_and_the_error_says_so(scripted, server, change, unknown):
    server.script(unknown)
    with pytest.raises((ConnectionFailed, ServerError)) as caught:
        change(scripted)
    assert len(server.requests) == 1
    assert "look at it" in "".join(caught.value.__notes__)


@pytest.mark.parametrize(
    "change",
    [
        lambda client: client.event_types.delete("a"),
        lambda client: client.subscriptions.delete("i"),
        lambda client: client.subscriptions.close_stream("i", "s"),
        lambda client: client.storages.delete("s"),
    ],
    ids=["event type", "subscription", "stream", "storage"],
)
def test_what_an_attempt_has_deleted_is_deleted(scripted, server, change):
    for unknown in (DROP, UNKNOWN):
        server.script(unknown, GONE)
        change(scripted)
        assert len(server.requests) == 2
    for answers in ([GONE], [READ_ONLY, GONE]):
        server.script(*answers)
        with pytest.raises(NotFound):
            change(scripted)


@pytest.mark.parametrize(
    ("change", "refusal", "made", "other"),
    [
        (lambda c: c.event_types.create(WANTED), CONFLICT, WANTED, {"owning_application": "c"}),
        (
            lambda c: c.event_types.update(WANTED, if_match="1"),
            Answer(412, {}),
            WANTED,
            {"schema": {"type": "json_schema", "schema": "true"}},
        ),
        (lambda c: c.storages.create(STORAGE), CONFLICT, STORAGE, {"kafka_configuration": {}}),
    ],
    ids=["event type", "update", "storage"],
)
def test_what_an_attempt_has_made_is_returned_and_what_another_client_has_made_is_a_conflict(
    scripted, server, change, refusal, made, other
):
    members = {**msgspec.to_builtins(made), "category": "business", "further": 1}
    server.script(DROP, refusal, Answer(200, members))
    assert change(scripted).members().items() >= made.members().items()
    for answers in ([refusal], [READ_ONLY, refusal], [DROP, refusal, Answer(200, members | other)]):
        server.script(*answers)
        with pytest.raises((Conflict, PreconditionFailed)):
            change(scripted)


def test_what_the_broker_did_not_do_is_asked_for_again(scripted, server):
    server.script(READ_ONLY, Answer(429, {}, AT_ONCE), Answer(200, b""))
    scripted.timelines.create("a", "s")
    assert len(server.requests) == 3


def test_a_batch_of_which_a_part_was_stored_is_sent_again_under_its_key(scripted, server):
    stored, lost = ({"publishing_status": each, "step": "publishing"} for each in ("submitted", "failed"))
    partial = Answer(207, [stored, lost])
    server.script_paths({"/event-types/a": [Answer(200, {"category": "business"})], EVENTS: [partial, READ_ONLY, OK]})
    assert scripted.publish("a", [{}, {}]) == []
    sent = [(request.body, request.headers["Idempotency-Key"]) for request in server.requests[1:]]
    assert (len(sent), len(set(sent))) == (3, 1)
    server.script_paths({EVENTS: [partial]})
    with pytest.raises(PublishingFailed, match="1 of 2"):
        scripted.publish("a", [{}, {}])
    assert len(server.requests) == 3


def test_a_client_that_is_closed_tries_no_longer(make_client, server):
    server.script(Answer(503, {"detail": "maintenance"}, {"Retry-After": "60"}))
    with make_client(server.url) as client, ThreadPoolExecutor(1) as other:
        target = getattr(client, "_target", None)
        if target is None:
            waiting = other.submit(client.storages.list)
            wait_until(lambda: client._transport._pauses)
            client.close()
            with pytest.raises(ClientError, match=r"closed before .* maintenance"):
                waiting.result(timeout=WAIT_S)
        else:

            async def close_meanwhile():
                waiting = asyncio.create_task(target.storages.list())
                await asyncio.to_thread(wait_until, lambda: target._transport._pauses)
                await target.close()
                await waiting

            with pytest.raises(ClientError, match=r"closed before .* maintenance"):
                client._loop.run_until_complete(asyncio.wait_for(close_meanwhile(), WAIT_S))


def test_what_was_tried_in_vain_says_how_often_and_since_when(make_client, server):
    server.script(Answer(503, {"detail": "maintenance"}))
    with make_client(server.url, retry_s=0.3) as client, pytest.raises(Unavailable, match="maintenance") as caught:
        client.storages.list()
    assert re.search(r"\(tried \d times in 0\.\d+ s, since 20\d\d-.*Z\)$", str(caught.value))


@pytest.mark.parametrize("options", [{"retry_s": -1}, {"retry_s": float("nan")}, {"timeout_s": 0}, {"attempts": 0}])
def test_limits_that_make_no_sense_are_refused(make_client, options):
    with pytest.raises(ValueError, match="must"):
        make_client("http://localhost", **options)


def test_a_header_that_is_none_is_not_tried_again(make_client, server):
    with make_client(server.url, headers={"X-Flow-Id": "a\nb"}) as client, pytest.raises(ConnectionFailed) as caught:
        client.storages.list()
    assert (caught.value.temporary, server.requests) == (False, [])


def test_a_refusal_is_final(scripted, server):
    server.script(Answer(404, {"title": "Not Found", "status": 404, "detail": "no"}))
    with pytest.raises(NotFound) as caught:
        scripted.storages.get("a/b")
    assert (caught.value.status, caught.value.detail) == (404, "no")
    assert [request.path for request in server.requests] == ["/storages/a%2Fb"]


def test_the_time_that_the_broker_asks_to_wait_is_known(scripted, server):
    server.script(Answer(429, {"title": "Too Many"}, {"Retry-After": "0"}))
    with pytest.raises(TooManyRequests) as caught:
        scripted.storages.list()
    assert caught.value.retry_after_s == 0


def test_an_answer_that_is_not_of_the_api_is_named(scripted, server):
    server.script(Answer(200, b"<html>"))
    with pytest.raises(UnexpectedAnswer, match="GET /storages"):
        scripted.storages.list()
    server.script(Answer(502, b"<html>Bad gateway"))
    with pytest.raises(Problem, match="Bad gateway"):
        scripted.event_types.create(EventType(name="a", owning_application="b", schema=Schema.json({})))


def test_a_token_is_sent_and_a_fixed_one_is_not_sent_twice(scripted, server):
    server.script(Answer(401, {"detail": "Full authentication is required"}))
    with pytest.raises(Unauthorized):
        scripted.storages.list()
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer secret"]


def test_a_refused_token_is_renewed_once(make_client, server):
    tokens = iter(["old", "new", "newer"])
    with make_client(server.url, token=lambda: next(tokens)) as client:
        server.script(Answer(401, {}), OK)
        assert client.storages.list() == []
        server.script(Answer(401, {}))
        with pytest.raises(Unauthorized):
            client.storages.list()
    assert [request.headers["Authorization"] for request in server.requests] == ["Bearer new", "Bearer newer"]


def test_a_source_that_has_no_token_sends_none(make_client, server):
    with make_client(server.url, token=lambda: None) as client:
        server.script(Answer(401, {"title": "Unauthorized"}))
        with pytest.raises(Unauthorized):
            client.monitoring.version()
    assert [request.headers.get("Authorization") for request in server.requests] == [None]


def test_url_and_token_come_from_the_environment(make_client, server, monkeypatch):
    monkeypatch.setenv("RIONI_URL", server.url)
    monkeypatch.setenv("RIONI_TOKEN", "of the environment")
    with make_client(None) as client:
        client.storages.list()
    assert server.requests[0].headers["Authorization"] == "Bearer of the environment"


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "http://"])
def test_a_url_that_is_none_is_refused(make_client, url):
    with pytest.raises(ValueError, match="is not the base URL of a broker"):
        make_client(url)


def test_a_certificate_that_is_none_is_refused(make_client, tmp_path):
    with pytest.raises(ValueError, match="can't be used"):
        make_client("https://localhost", ca_certificate=tmp_path / "none.pem")


def test_a_broker_that_is_not_there_is_named(make_client):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with make_client(url, attempts=1) as client, pytest.raises(ConnectionFailed, match=url) as caught:
        client.storages.list()
    assert not caught.value.sent


def test_a_broker_that_is_silent_ends_in_time(make_client):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with make_client(url, attempts=1, timeout_s=0.05) as client, pytest.raises(TimedOut):
            client.storages.list()


def test_all_errors_are_client_errors(scripted, server):
    server.script(Answer(500, {}))
    with pytest.raises(ClientError):
        [*scripted.events("a")]


def test_the_trace_context_of_the_application_is_sent(scripted, server, monkeypatch):
    inject = SimpleNamespace(inject=lambda carrier: carrier.update(traceparent="00-1-2-01"))
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", inject)
    scripted.storages.list()
    assert server.requests[0].headers["traceparent"] == "00-1-2-01"


def test_a_stream_that_breaks_or_is_none_is_an_error(scripted, server):
    batch = {"cursor": {"partition": "0", "offset": "1"}, "events": [{"a": 1}]}
    line = msgspec.json.encode(batch) + b"\n"
    server.script(Answer(200, line * 3 + line[:9]))
    assert [len(batch.events) for batch in scripted.events("a")] == [1, 1, 1]
    server.script(Answer(200, b"<html>\n"))
    with pytest.raises(UnexpectedAnswer, match="not a batch"):
        [*scripted.events("a")]
