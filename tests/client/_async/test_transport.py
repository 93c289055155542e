"""What the transport does when a broker refuses, breaks off, asks to wait, or is something else."""

import socket
import sys
from types import SimpleNamespace

import msgspec
import pytest

from rioni.client import (
    ClientError,
    ConnectionFailed,
    EventType,
    NotFound,
    Problem,
    Schema,
    TimedOut,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnexpectedAnswer,
)
from tests.support.scripted_server import DROP, Answer, scripted_server


OK = Answer(200, [])
AT_ONCE = {"Retry-After": "0"}


@pytest.fixture(scope="module")
def _server():
    with scripted_server() as server:
        yield server


@pytest.fixture
def server(_server):
    _server.script(OK)
    return _server


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


def test_what_the_broker_may_have_done_is_not_asked_for_twice(scripted, server):
    server.script(DROP)
    with pytest.raises(ConnectionFailed):
        scripted.event_types.create(EventType(name="a", owning_application="b", schema=Schema.json({})))
    server.script(Answer(503, {"detail": "The outcome is unknown"}, AT_ONCE))
    with pytest.raises(Unavailable):
        scripted.event_types.delete("a")
    assert len(server.requests) == 1


def test_what_the_broker_did_not_do_is_asked_for_again(scripted, server):
    server.script(Answer(503, {"detail": "Read-only"}, AT_ONCE), Answer(429, {}, AT_ONCE), Answer(200, b""))
    scripted.event_types.delete("a")
    assert len(server.requests) == 3


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
