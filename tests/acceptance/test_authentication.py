"""Authentication: reference common#modes, on a server for each mode.

Source: reference common#authentication.
"""

import contextlib
import json
import re
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rioni.http.middleware.authentication import TOKEN_CHARACTERS_MAX
from tests.acceptance.conftest import event, rows
from tests.support.builders import event_type_body
from tests.support.http_servers import serving
from tests.support.server import open_stream, refused_start, running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, sha256, write_tokens


UNAUTHENTICATED = "Full authentication is required to access this resource"
EXPIRED = f"{UNAUTHENTICATED}: the token has expired"
UNKNOWN = f"{UNAUTHENTICATED}: the token is not one that this broker accepts"
MALFORMED = (
    f"{UNAUTHENTICATED}: the header Authorization is not `Bearer`, a space and a token of at most 16,384 characters"
)
REALM = "Insufficient realms for this resource"
CHALLENGE = 'Bearer realm="rioni"'
REFUSED = 'Bearer realm="rioni", error="invalid_token"'
FOREIGN = 'Bearer realm="rioni", error="insufficient_scope"'
WRITE, READ = "nakadi.event_stream.write", "nakadi.event_stream.read"
DEFINE, DELETE = "nakadi.event_type.write", "nakadi.config.write"


def needs(scope, *held):
    """The detail for a missing scope."""
    return f"Insufficient scope for this resource: needs scope {scope}; the token has {', '.join(held) or 'none'}"


def lacking(scope):
    """The error for a missing scope."""
    return f'Bearer realm="rioni", error="insufficient_scope", scope="{scope}"'


TOKENS = {
    "good": {"uid": "alice", "realm": "employees"},
    "service": {"uid": "stups_shop", "realm": "/services"},
    "customer": {"uid": "carol", "realm": "customers"},
    "x" * TOKEN_CHARACTERS_MAX: {"uid": "alice", "realm": "employees"},
    "no-scope": {"uid": "alice", "scopes": []},
    "full": {"uid": "alice", "scopes": list(FULL_SCOPES)},
    "reads": {"uid": "alice", "scopes": ["nakadi.event_stream.read"]},
    "writes": {"uid": "alice", "scopes": ["nakadi.event_stream.write"]},
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """A server for each mode, started when it is first needed."""
    running = {}
    with contextlib.ExitStack() as stack:

        def start(mode):
            if mode not in running:
                folder = tmp_path_factory.mktemp(mode)
                write_tokens(folder / "tokens.toml", TOKENS)
                with (folder / "tokens.toml").open("a") as file:
                    file.write(ending("over", "2020-01-01T00:00:00Z"))
                environment = {
                    "RIONI_AUTH_MODE": mode,
                    **ADMINISTRATOR,
                    "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
                }
                server = running_server(folder / "data", "--workers", "1", environment=environment)
                running[mode] = stack.enter_context(server)
            return running[mode]

        yield start


@pytest.fixture
def strict(request, servers):
    """The server of a mode."""
    return servers(request.param)


def ending(token, time):
    """The table of a token that expires."""
    return f'\n[[token]]\nsha256 = "{sha256(token)}"\nuid = "alice"\nexpires = {time}\n'


MODES = ["basic", "realm", "full"]
ALL, BOTH, BASIC, FULL = MODES, ["basic", "full"], ["basic"], ["full"]
CASES = rows(
    ("no token", ALL, "GET", "/event-types", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("an unknown token", ALL, "GET", "/event-types", "nope", 401, UNKNOWN, REFUSED),
    ("a token whose time is over", BASIC, "GET", "/version", "over", 401, EXPIRED, REFUSED),
    ("not a bearer", BASIC, "GET", "/event-types", {"Authorization": "Basic Z29vZA=="}, 401, MALFORMED, REFUSED),
    ("two tokens", BASIC, "GET", "/version", {"Authorization": "Bearer good good"}, 401, MALFORMED, REFUSED),
    ("a token in the query", BASIC, "GET", "/event-types?access_token=good", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("an unknown path", BOTH, "GET", "/nope", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("a wrong verb", BOTH, "PATCH", "/event-types", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("options", BOTH, "OPTIONS", "/event-types", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("metrics", BOTH, "GET", "/metrics", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("version", BOTH, "GET", "/version", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("health", ALL, "GET", "/health", {}, 200, None, None),
    ("life", ALL, "GET", "/livez", {}, 200, None, None),
    ("readiness", ALL, "GET", "/readyz", {}, 200, None, None),
    ("description", ALL, "GET", "/openapi.json", {}, 200, None, None),
    ("page", ALL, "GET", "/docs", {}, 200, None, None),
    ("health, trailing slash", BASIC, "GET", "/health/", {}, 200, None, None),
    ("health is no prefix", BASIC, "GET", "/health/x", {}, 401, UNAUTHENTICATED, CHALLENGE),
    ("the scope uid", ALL, "GET", "/event-types", "good", 200, None, None),
    ("the word bearer in any case", BASIC, "GET", "/event-types", {"Authorization": "bEARER good"}, 200, None, None),
    ("no scope", ALL, "GET", "/event-types", "no-scope", 403, needs("uid"), lacking("uid")),
    ("other scopes", ALL, "GET", "/event-types", "reads", 403, needs("uid", READ), lacking("uid")),
    ("realm with a slash", ["realm"], "GET", "/event-types", "service", 200, None, None),
    ("longest token", ALL, "GET", "/event-types", "x" * TOKEN_CHARACTERS_MAX, 200, None, None),
    ("too long", ALL, "GET", "/event-types", "x" * (TOKEN_CHARACTERS_MAX + 1), 401, MALFORMED, REFUSED),
    ("foreign realm", ["realm"], "GET", "/event-types", "customer", 403, REALM, FOREIGN),
    ("foreign realm elsewhere", BOTH, "GET", "/event-types", "customer", 200, None, None),
    ("publishing", FULL, "POST", "/event-types/x/events", "good", 403, needs(WRITE, "uid"), lacking(WRITE)),
    ("publishing with its scope", FULL, "POST", "/event-types/x/events", "writes", 404, "EventType", None),
    ("publishing in basic", BASIC, "POST", "/event-types/x/events", "good", 404, "EventType", None),
    ("reading", FULL, "GET", "/event-types/x/partitions", "good", 403, needs(READ, "uid"), lacking(READ)),
    ("reading with its scope", FULL, "GET", "/event-types/x/partitions", "reads", 404, "EventType", None),
    ("creating", FULL, "POST", "/event-types", "reads", 403, needs(DEFINE, READ), lacking(DEFINE)),
    ("deleting", FULL, "DELETE", "/event-types/x", "writes", 403, needs(DELETE, WRITE), lacking(DELETE)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("strict", "method", "path", "token", "status", "detail", "challenge"),
    [pytest.param(mode, *case.values[1:], id=f"{mode}: {case.id}") for case in CASES for mode in case.values[0]],
    indirect=["strict"],
)
def test_requests_are_authenticated_as_the_mode_requires(strict, method, path, token, status, detail, challenge):
    """Reference common#public-paths, common#refused-tokens, common#scopes, common#problem-types."""
    headers = bearer(token) if isinstance(token, str) else token
    with strict.client(headers=headers) as client:
        response = client.request(method, path, content=b"[]" if method == "POST" else None)
    assert response.status_code == status, response.text
    assert response.headers.get("www-authenticate") == challenge
    if challenge is not None:
        title = "Unauthorized" if status == 401 else "Forbidden"
        expected = {"type": f"https://httpstatus.es/{status}", "title": title, "status": status, "detail": detail}
        assert response.json() == expected
        assert response.headers["content-type"] == "application/problem+json"
    elif detail is not None:
        assert detail in response.json()["detail"]


@pytest.mark.parametrize("mode", MODES)
def test_a_token_names_the_publisher_and_the_actor_and_is_written_nowhere(servers, mode, name):
    server = servers(mode)
    secret = "s3cret-canary-token"
    with server.client(headers=bearer("full" if mode == "full" else "good")) as client:
        assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
        assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200
        cursors = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
        with open_stream(client, f"/event-types/{name}/events?stream_limit=1", headers=cursors) as stream:
            assert stream.events(1)[0]["metadata"]["published_by"] == "alice"
    with server.client(headers=bearer(secret)) as client:
        answer = client.get("/event-types")
    assert secret not in answer.text + str(answer.headers) + "".join(server.lines)


@pytest.mark.parametrize("sent", ["a\tb", "ä", "x" * 201, ""])
def test_a_flow_id_that_could_confuse_a_log_is_replaced(client, sent):
    """hostile input: injection into logs; CR and LF end the header for the server already."""
    answer = client.get("/health", headers={"X-Flow-Id": sent.encode()})
    assert re.fullmatch(r"[0-9a-f]{24}", answer.headers["x-flow-id"])


def _brief(server, tokens) -> str:
    """A token that the server accepts now, and that ends soon: later on a busy machine, which may use up the time."""
    for lifetime_s in (6, 30, 90):
        token, end = f"brief-{lifetime_s}", datetime.now(UTC) + timedelta(seconds=lifetime_s)
        with tokens.open("a") as file:
            file.write(ending(token, end.isoformat()))
        # The file is read again within a second.
        with server.client(headers=bearer(token)) as client:
            while datetime.now(UTC) < end:
                if client.get("/version").status_code == HTTPStatus.OK:
                    return token
    raise AssertionError("the server accepts no new token")


def test_a_stream_ends_with_its_token_and_gives_the_reason(tmp_path, name):
    """Reference common#tokens-of-streams."""
    tokens = tmp_path / "tokens.toml"
    write_tokens(tokens, {"lasting": {"uid": "alice"}})
    environment = {"RIONI_AUTH_MODE": "basic", **ADMINISTRATOR, "RIONI_AUTH_TOKENS": str(tokens)}
    with running_server(tmp_path / "data", "--workers", "1", environment=environment) as server:
        with server.client(headers=bearer("lasting")) as client:
            client.post("/event-types", json=event_type_body(name=name))
            body = {"owning_application": "shop", "event_types": [name], "read_from": "begin"}
            subscription = client.post("/subscriptions", json=body).json()["id"]
        paths = f"/subscriptions/{subscription}/events?commit_timeout=1", f"/event-types/{name}/events"
        with server.client(headers=bearer(_brief(server, tokens))) as client, contextlib.ExitStack() as stack:
            streams = [stack.enter_context(open_stream(client, path)) for path in paths]
            ends = [stream.batches()[-1]["info"]["debug"] for stream in streams]
        assert all(text.endswith("Token is no longer valid") for text in ends), ends


class _TokenInfo(BaseHTTPRequestHandler):
    """A token info service that knows one token while it is up; counts the requests."""

    def do_GET(self):
        self.server.asked += 1
        known = self.headers["Authorization"] == "Bearer known"
        self.send_response(500 if self.server.down else 200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"uid": "alice", "scope": ["uid"], "realm": "employees"}).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def token_info():
    service = ThreadingHTTPServer(("127.0.0.1", 0), _TokenInfo)
    service.asked, service.down = 0, False
    with serving(service):
        yield service


def test_while_the_token_info_service_is_down_only_cached_tokens_are_accepted(token_info, tmp_path):
    """Reference common#tokens-unavailable."""
    url = f"http://127.0.0.1:{token_info.server_port}/tokeninfo"
    environment = {"RIONI_AUTH_MODE": "basic", **ADMINISTRATOR, "RIONI_AUTH_TOKENINFO_REMOTE": url}
    running = running_server(tmp_path / "data", "--workers", "1", environment=environment)
    with running as server, server.client() as client:
        for _ in range(5):
            assert client.get("/event-types", headers=bearer("known")).status_code == 200
            assert client.get("/event-types", headers=bearer("other")).status_code == 401
        assert token_info.asked == 2
        token_info.down = True
        assert client.get("/event-types", headers=bearer("known")).status_code == 200
        refused = client.get("/event-types", headers=bearer("third"))
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "2"
        assert refused.json()["type"] == "https://httpstatus.es/503"
        assert "third" not in refused.text


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"RIONI_AUTH_MODE": "basic"}, "auth_mode basic needs one of auth_tokens, auth_issuers"),
        ({"RIONI_AUTH_MODE": "basic", "RIONI_AUTH_TOKENS": "tokens.toml"}, "auth_mode basic needs default_admin"),
        ({"RIONI_AUTH_MODE": "full", "RIONI_AUTH_TOKENS": "tokens.toml"}, "auth_mode full needs default_admin"),
        ({"RIONI_AUTH_MODE": "strict"}, "must be one of off, basic, realm, full, not 'strict'"),
        ({"RIONI_AUTH_TOKENS": "nowhere.toml"}, "nowhere.toml can't be used: No such file or directory"),
        ({"RIONI_AUTH_ISSUERS": "nowhere.toml"}, "nowhere.toml can't be used: No such file or directory"),
        ({"RIONI_AUTH_TOKENINFO_LOCAL": "http://elsewhere/"}, "auth_tokeninfo_local must begin with https://"),
    ],
)
def test_a_server_that_could_not_check_tokens_does_not_start(tmp_path, environment, reason):
    """Reference authorization#default-administrator."""
    assert reason in refused_start(tmp_path / "data", environment=environment)
