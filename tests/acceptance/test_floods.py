"""A client that fills a shared budget of a worker leaves room for others: each budget, and each client that can.

A stranger has no token, or a bad one; a user has a valid token and no rights; an auditor and an owner have rights.
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Self
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens
from tests.support.waiting import WAIT_S


pytestmark = [pytest.mark.slow, pytest.mark.one_server]

CONNECTIONS = 200
PROGRAM = f"""
from rioni.patches.gevent import patch
patch()
from rioni.server import processes
processes.WORKER_CONNECTIONS = {CONNECTIONS}
from rioni.cli.app import main
main()
"""
"""The broker, with a worker that serves few connections at a time."""
ANSWERS_BYTES = 3_000_000
SETTINGS = {
    "RIONI_AUTH_MODE": "full",
    "RIONI_AUDIT_READERS": "service:auditor,service:other",
    "RIONI_ANSWERS_BYTES_MAX": str(ANSWERS_BYTES),
    "RIONI_ANSWERS_BYTES_PER_CLIENT_MAX": str(ANSWERS_BYTES),
    "RIONI_BODIES_BYTES_MAX": "4000000",
    "RIONI_BODIES_BYTES_PER_CLIENT_MAX": "4000000",
    # Idle connections end when there is no room, and not before the test ends.
    "RIONI_KEEP_ALIVE_S": "600",
    "RIONI_HEADER_TIMEOUT_S": "600",
    "RIONI_BODY_TIMEOUT_S": "600",
}
USERS = ("stups_nakadi", "auditor", "other", "user", "writer")
"""The users; the one that fills something is never the one that needs it. `user` has no rights."""
LARGE, SMALL = 16, "floods.small"


class Flood:
    """A server, and what fills it until the end of a test."""

    def __init__(self, server) -> None:
        self.url, self._stack = server.url, contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def open(self, sent: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        """A connection on which something was sent, and nothing is read."""
        where = urlsplit(self.url)
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        found.bind((address, 0))
        found.settimeout(WAIT_S)
        self._stack.enter_context(found)
        found.connect((where.hostname, where.port))
        found.sendall(sent)
        return found

    def ask(self, path: str, token: str | None = None, address: str = "127.0.0.1", accept: str = "*/*") -> int:
        """The status of an answer of which nothing else is read."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", f"Accept: {accept}"]
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        connection = self.open("\r\n".join([*lines, "", ""]).encode(), address)
        return int(connection.recv(12).split()[1])


@contextlib.contextmanager
def client_of(server, user: str | None) -> Iterator[httpx.Client]:
    """A client at another host than those who fill something."""
    transport = httpx.HTTPTransport(local_address="127.0.0.2", verify=False)
    headers = {} if user is None else bearer(user)
    with httpx.Client(base_url=server.url, transport=transport, headers=headers, timeout=WAIT_S) as client:
        yield client


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("floods")
    scopes = list(FULL_SCOPES)
    write_tokens(folder / "tokens.toml", {user: {"uid": user, "realm": "services", "scopes": scopes} for user in USERS})
    environment = {**ADMINISTRATOR, **SETTINGS, "RIONI_AUTH_TOKENS": str(folder / "tokens.toml")}
    options = {"environment": environment, "program": ("-c", PROGRAM)}
    with running_server(folder / "data", "--workers", "1", **options) as server:
        with client_of(server, "stups_nakadi") as client:
            for number in range(LARGE):
                text = json.dumps({"description": f"{number} ".ljust(250_000, "x")})
                body = event_type_body(name=f"floods.large-{number}", schema={"type": "json_schema", "schema": text})
                assert client.post("/event-types", json=body).status_code == 201
            authorization = {
                name: [{"data_type": "service", "value": user} for user in ("other", "writer")]
                for name in ("admins", "readers", "writers")
            }
            body = event_type_body(name=SMALL, category="undefined", enrichment_strategies=[])
            body |= {"schema": {"type": "json_schema", "schema": "{}"}, "authorization": authorization}
            assert client.post("/event-types", json=body).status_code == 201
        yield server


# --- what fills ---


def silent_connections(flood):
    for _ in range(2 * CONNECTIONS):
        flood.open()


def half_heads(flood):
    for _ in range(2 * CONNECTIONS):
        flood.open(b"GET /event-types HTTP/1.1\r\n")


def refused_bodies(flood):
    head = b"POST /event-types HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n{"
    for _ in range(2 * CONNECTIONS):
        flood.open(head)


def unread_descriptions(flood):
    for number in range(40):
        flood.ask("/openapi.json" if number % 2 else "/docs", address=f"127.0.1.{number % 8 + 1}")


def until_refused(ask):
    statuses = [ask()]
    while statuses[-1] == 200:
        assert len(statuses) < CONNECTIONS
        statuses.append(ask())
    assert statuses[-1] == 429
    assert len(statuses) > 1


def unread_lists(flood):
    until_refused(lambda: flood.ask("/event-types", "user"))


def unread_exports(flood):
    until_refused(lambda: flood.ask("/audit?states=true", "auditor", accept="application/x-ndjson"))


def unfinished_bodies(flood):
    head = "POST /event-types/{}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n"
    head = f"{head}Content-Length: 3000000\r\n\r\n".format(SMALL, "writer")
    for _ in range(4):
        with contextlib.suppress(OSError):  # refused before all of it was sent
            flood.open(head.encode() + b" " * 1_500_000)


def bad_tokens(flood):
    with httpx.Client(base_url=flood.url, timeout=WAIT_S, verify=False) as client:
        statuses = {client.get("/event-types", headers=bearer(f"bad-{number}")).status_code for number in range(300)}
    assert statuses == {401}


def bad_logins(flood):
    with httpx.Client(base_url=flood.url, timeout=WAIT_S, verify=False) as client:
        for number in range(100):
            cookie, form = _login(client, f"bad-{number}")
            assert client.post("/console/login", data=form, headers=cookie).status_code == 403


def invented_names(flood):
    with httpx.Client(base_url=flood.url, timeout=WAIT_S, verify=False) as client:
        for number in range(100):
            client.request(f"INVENTED{number}", f"/event-types/invented-{number}/{number}")
            client.get(f"/event-types/invented-{number}/events", headers=bearer("user"))
            client.get(f"/invented-{number}", headers=bearer("user"))


# --- what others want ---


def change_something(server):
    with client_of(server, "stups_nakadi") as client:
        answer = client.post("/settings/features", json={"feature": "remote_tokeninfo", "enabled": False})
        assert answer.status_code == 204, answer.text


def read_all_event_types(server):
    with client_of(server, "other") as client:
        answer = client.get("/event-types")
        assert answer.status_code == 200, answer.text
        assert len(answer.json()) >= LARGE


def export_the_audit_trail(server):
    with client_of(server, "other") as client:
        answer = client.get("/audit", headers={"Accept": "application/x-ndjson"})
        assert answer.status_code == 200, answer.text


def publish(server):
    with client_of(server, "other") as client:
        answer = client.post(f"/event-types/{SMALL}/events", json=[{"text": "x" * 500_000}])
        assert answer.status_code == 200, answer.text


def log_in(server):
    with client_of(server, None) as client:
        cookie, form = _login(client, "other")
        assert client.post("/console/login", data=form, headers=cookie).status_code == 303


def _login(client, token):
    page = client.get("/console/login", headers={"Accept": "text/html"})
    cookie = page.headers["Set-Cookie"].partition(";")[0]
    csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
    assert csrf, page.text
    return {"Cookie": cookie}, {"csrf": csrf, "token": token}


EVERYTHING = (change_something, read_all_event_types, export_the_audit_trail, publish, log_in)
FLOODS = (
    silent_connections,
    half_heads,
    refused_bodies,
    unread_descriptions,
    unread_lists,
    unread_exports,
    unfinished_bodies,
    bad_tokens,
    bad_logins,
    invented_names,
)


@pytest.mark.parametrize("fill", FLOODS, ids=lambda fill: fill.__name__)
def test_what_one_client_fills_leaves_room_for_others(server, fill):
    """Reference common#bodies-in-flight, common#answers-in-flight, operations#connections, audit#audit-export."""
    with Flood(server) as flood:
        fill(flood)
        for wish in EVERYTHING:
            wish(server)
