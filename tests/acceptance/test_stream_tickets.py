"""Tickets of streams: what they open, how often, and that nothing shows them; in a browser too.

Source: reference streams#tickets.
"""

import contextlib
import itertools
import json
from pathlib import Path

import pytest

from rioni.client import Client, Subscription
from rioni.http.streaming.stream_tickets import TICKET_CHARACTERS_MAX, without_tickets
from tests.support.browser import needs_browser
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.tcp_proxy import TcpProxy
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens
from tests.support.waiting import wait_until


NUMBERS = itertools.count()
EVENTS = {"Accept": "text/event-stream"}
PAGE = (Path(__file__).parents[1] / "clients" / "browsers" / "page.js").read_text()
READ_STREAM = (
    "() => {"
    + PAGE
    + """
window.seen = [];
const getTicket = async path => (await (await fetch("/stream-tickets", {
  method: "POST",
  headers: {"Content-Type": "application/json", "Authorization": "Bearer admin"},
  body: JSON.stringify({path}),
})).json()).ticket;
window.tickets = 0;
readStream(PATH, path => { window.tickets += 1; return getTicket(path); },
  batch => window.seen.push(...batch.events.map(each => each.n)));
}"""
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tickets")
    tokens = {
        "admin": {"uid": "stups_nakadi", "realm": "services", "scopes": [*FULL_SCOPES, "uid"]},
        "stranger": {"uid": "stranger", "realm": "employees", "scopes": [*FULL_SCOPES, "uid"]},
        "uid-only": {"uid": "stups_nakadi", "realm": "services", "scopes": ["uid"]},
        "x" * TICKET_CHARACTERS_MAX: {"uid": "alice", "scopes": [*FULL_SCOPES, "uid"]},
    }
    write_tokens(folder / "tokens.toml", tokens)
    environment = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUTH_SERVICE_REALMS": "services",
    }
    with running_server(folder / "data", "--workers", "2", environment=environment) as server:
        yield server


@pytest.fixture(scope="module")
def api(server):
    with server.client(headers=bearer("admin")) as api:
        yield api


@pytest.fixture
def path(api):
    """An event type that only the administrator of the broker reads."""
    name = f"tickets.{next(NUMBERS)}"
    nobody = [{"data_type": "user", "value": "nobody"}]
    section = {"admins": nobody, "readers": nobody, "writers": nobody}
    body = event_type_body(
        name=name,
        category="undefined",
        enrichment_strategies=[],
        schema={"type": "json_schema", "schema": "{}"},
        authorization=section,
    )
    api.post("/event-types", json=body).raise_for_status()
    return f"/event-types/{name}/events"


def ticket_for(server, path, token="admin"):
    with server.client(headers=bearer(token)) as api:
        answer = api.post("/stream-tickets", json={"path": path})
        assert answer.status_code == 201, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()["ticket"]


def opened(server, path, ticket, headers=EVENTS, **params):
    """Open a stream as a browser does, without a token; return the status, and the ids of its events."""
    wanted = {"ticket": ticket, "batch_flush_timeout": 1, "stream_timeout": 1, **params}
    with server.client() as browser, browser.stream("GET", path, params=wanted, headers=headers) as answer:
        text = answer.read().decode()
        return answer.status_code, [line[4:] for line in text.split("\n") if line.startswith("id: ")]


def test_a_ticket_opens_its_stream_once_on_any_worker(server, path):
    ticket = ticket_for(server, path)
    assert opened(server, path, ticket)[0] == 200
    # New connections, of which each worker gets some.
    assert {opened(server, path, ticket)[0] for _ in range(6)} == {401}


def test_the_client_gets_tickets_for_both_kinds_of_streams(server, path):
    name = path.split("/")[2]
    with Client(server.url, token="admin") as client:
        wanted = Subscription(owning_application="tickets", event_types=[name])
        subscription = client.subscriptions.create(wanted).id
        tickets = [client.event_types.stream_ticket(name), client.subscriptions.stream_ticket(subscription)]
    assert [each.path for each in tickets] == [path, f"/subscriptions/{subscription}/events"]
    assert all(each.expires_at.tzinfo is not None for each in tickets)
    for each in tickets:
        assert opened(server, each.path, each.ticket)[0] == 200
        assert opened(server, each.path, each.ticket)[0] == 401


def test_the_stream_is_resumed_with_its_last_id(server, path):
    ticket = ticket_for(server, path)
    _, ids = opened(server, path, ticket)
    for _ in range(3):
        status, again = opened(server, path, ticket, EVENTS | {"Last-Event-ID": ids[-1]})
        assert status == 200
        ids = again
    other = ticket_for(server, path)
    assert opened(server, path, other)[0] == 200
    assert opened(server, path, other, EVENTS | {"Last-Event-ID": ids[-1]})[0] == 401
    forged = json.loads(ids[-1])
    forged[0]["resume"] = forged[0]["resume"].replace(".", "0.", 1)
    assert opened(server, path, ticket, EVENTS | {"Last-Event-ID": json.dumps(forged)})[0] == 401


@pytest.mark.parametrize(
    "change",
    ["-".join, lambda text: text[:-3] + "AAA", lambda text: text + "é", lambda text: text[:9], lambda text: text * 9],
    ids=["apart", "end", "letter", "short", "long"],
)
def test_what_is_no_ticket_opens_nothing(server, path, change):
    assert opened(server, path, change(ticket_for(server, path)))[0] == 401


def test_a_ticket_opens_nothing_else(server, api, path):
    other = path.replace("tickets.", "other.")
    ticket = ticket_for(server, path)
    assert opened(server, other, ticket)[0] == 401
    assert opened(server, path, ticket, {"Accept": "*/*"})[0] == 401
    with server.client() as browser:
        for method, at in (("HEAD", path), ("POST", path), ("GET", path.removesuffix("/events")), ("GET", "/rights")):
            assert browser.request(method, at, params={"ticket": ticket}, headers=EVENTS).status_code == 401
        sent = browser.post("/stream-tickets", params={"ticket": ticket}, json={"path": path}, headers=EVENTS)
        assert sent.status_code == 401
    assert opened(server, path, ticket)[0] == 200


def test_a_ticket_permits_what_its_token_does(server, api, path):
    assert opened(server, path, ticket_for(server, path, "stranger"))[0] == 403
    with server.client(headers=bearer("uid-only")) as lacking:
        assert lacking.post("/stream-tickets", json={"path": path}).status_code == 403
    ticket = ticket_for(server, path)
    _, ids = opened(server, path, ticket)
    blocked = "/settings/blacklist/CONSUMER_APP/stups_nakadi"
    api.put(blocked).raise_for_status()
    try:
        resumed = EVENTS | {"Last-Event-ID": ids[-1]}
        wait_until(lambda: opened(server, path, ticket, resumed)[0] == 403)
    finally:
        api.delete(blocked).raise_for_status()


@pytest.mark.parametrize("body", [{}, {"path": None}, {"path": "/audit"}, {"path": "/event-types/a/b/events"}])
def test_tickets_are_for_streams(api, body):
    assert api.post("/stream-tickets", json=body).status_code == 422


@pytest.mark.parametrize(
    ("token", "name"), [("x" * TICKET_CHARACTERS_MAX, "a"), ("admin", "a" * TICKET_CHARACTERS_MAX)]
)
def test_a_token_or_path_that_is_too_long_gets_no_ticket(server, token, name):
    with server.client(headers=bearer(token)) as api:
        answer = api.post("/stream-tickets", json={"path": f"/event-types/{name}/events"})
    assert answer.status_code == 422
    assert "path and your token are too long for a ticket" in answer.text


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("a=1&ticket=secret&b=2", "a=1&ticket=-&b=2"),
        ("%74icket=secret", "%74icket=-"),
        ("ticket=secret&ticket=secret", "ticket=-&ticket=-"),
        ("tic%6bet=secret&a", "tic%6bet=-&a"),
        ("a=ticket", "a=ticket"),
        ("", ""),
    ],
)
def test_logs_show_no_ticket(query, shown):
    assert without_tickets(query) == shown


@needs_browser
@pytest.mark.parametrize("api_kind", ["low-level", "subscription"])
def test_a_browser_resumes_without_loss_or_repetition(server, api, path, browser, api_kind):
    name, published = path.split("/")[2], path
    publish = lambda *numbers: api.post(published, json=[{"n": n} for n in numbers]).raise_for_status()  # noqa: E731
    if api_kind == "subscription":
        wanted = {"owning_application": "tickets", "event_types": [name], "read_from": "end"}
        path = f"/subscriptions/{api.post('/subscriptions', json=wanted).json()['id']}/events"
    with contextlib.closing(TcpProxy(("127.0.0.1", int(server.url.rpartition(":")[2])))) as proxy:
        page = browser.new_page()
        page.goto(f"http://{proxy.address}/health")
        opens = lambda response: path in response.url and response.status == 200  # noqa: E731
        with page.expect_response(opens):
            page.evaluate(READ_STREAM.replace("PATH", json.dumps(path)))
        publish(1, 2)
        page.wait_for_function("window.seen.length >= 2")
        for number in (3, 5):
            with page.expect_response(opens):
                proxy.break_off()
                publish(number)
            publish(number + 1)
            page.wait_for_function(f"window.seen.includes({number + 1})")
        assert page.evaluate("window.seen") == [1, 2, 3, 4, 5, 6]
        assert page.evaluate("window.tickets") == 1
        page.close()
