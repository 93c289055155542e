"""Requests that a browser sends for web pages of other sites, and for host names that are not the broker's.

Source: reference common#other-sites, common#host-names.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import orjson
import pytest

from rioni.http.middleware.cross_site import HOSTS_CACHED
from tests.acceptance.conftest import event, problem, rows
from tests.support.browser import needs_browser
from tests.support.builders import event_type_body
from tests.support.conformance import check
from tests.support.http_servers import serving
from tests.support.routes import routed
from tests.support.server import open_stream, running_server
from tests.support.tokens import bearer, write_tokens
from tests.support.waiting import WAIT_S


ROUTES = sorted(routed())
STREAMS = ("GET /event-types/{name}/events", "GET /subscriptions/{subscription_id}/events")
WITH_EFFECTS = [route for route in ROUTES if not route.startswith("GET ") or route in STREAMS]
READING = [route for route in ROUTES if route not in WITH_EFFECTS]
EVIL = "https://evil.example"
CROSS_SITE = rows(
    ("a form of an older browser", {"Origin": EVIL}),
    ("another site", {"Origin": EVIL, "Sec-Fetch-Site": "cross-site"}),
    ("another port of this machine", {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}),
    ("another port of this machine, an older browser", {"Origin": "http://localhost:3000"}),
    ("a sandboxed frame", {"Origin": "null"}),
    ("no origin", {"Sec-Fetch-Site": "cross-site"}),
    ("an unknown value", {"Sec-Fetch-Site": "no-site-yet"}),
    ("an origin that is none", {"Origin": "http://[::1"}),
    ("an origin without a host", {"Origin": "file://"}),
    ("an empty origin", {"Origin": ""}),
    ("two origins", {"Origin": f"http://localhost, {EVIL}"}),
    ("an origin as long as can be", {"Origin": "https://" + "e" * 8_000}),
)
MEDIA = (
    None,
    "application/json",
    "text/plain;charset=UTF-8",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/avro-binary",
)
READ_ONLY = b'{"feature": "disable_db_write_operations", "enabled": true}'


def called(client, route, **options):
    """Make a request to a route, with any values for its path parameters."""
    method, path = route.split()
    return client.request(method, re.sub(r"\{\w+\}", "x", path), **options)


@pytest.mark.parametrize("route", WITH_EFFECTS)
def test_requests_with_effects_are_rejected_for_pages_of_other_sites(client, route):
    refused = called(client, route, headers={"Origin": EVIL, "Sec-Fetch-Site": "cross-site"})
    body = problem(refused, 403, "allowed_origins")
    assert EVIL in body["detail"]


@pytest.mark.parametrize("route", READING)
def test_pages_of_other_sites_may_link_to_read_only_pages(client, route):
    assert called(client, route, headers={"Sec-Fetch-Site": "cross-site"}).status_code != 403


@pytest.mark.parametrize("headers", CROSS_SITE)
def test_a_page_of_another_site_changes_nothing_with_any_media_type(client, name, create, headers):
    create(name)
    for media in MEDIA:
        sent = {**headers, **({"Content-Type": media} if media else {})}
        batch, more = orjson.dumps([event()]), orjson.dumps(event_type_body(name=f"{name}.more"))
        problem(client.post(f"/event-types/{name}/events", content=batch, headers=sent), 403)
        problem(client.post("/event-types", content=more, headers=sent), 403)
        problem(client.post("/settings/features", content=READ_ONLY, headers=sent), 403)
    assert client.get(f"/event-types/{name}.more").status_code == 404
    partition = client.get(f"/event-types/{name}/partitions").json()[0]
    assert partition["newest_available_offset"] == "001-0001--1"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_site_opens_no_stream(client, name, create, subscribe, method):
    path = f"/subscriptions/{subscribe(create(name))}/events"
    problem(client.request(method, path, headers={"Sec-Fetch-Site": "cross-site"}), 403)
    with open_stream(client, f"{path}?batch_flush_timeout=1", headers={"Sec-Fetch-Site": "same-origin"}) as stream:
        assert stream.batch()["cursor"]["partition"] == "0"


@pytest.mark.parametrize(
    "headers",
    rows(
        ("no browser", lambda _: {}),
        ("a page of the broker", lambda url: {"Origin": url, "Sec-Fetch-Site": "same-origin"}),
        ("a page of the broker in an older browser", lambda url: {"Origin": url}),
        ("a page of the broker behind a proxy", lambda _: {"Origin": EVIL, "Sec-Fetch-Site": "same-origin"}),
        ("the user", lambda _: {"Sec-Fetch-Site": "none"}),
    ),
)
def test_requests_that_are_not_cross_site_are_not_affected(server, name, create, headers):
    create(name)
    url = server.url
    for media in ({}, {"Content-Type": "application/json"}):
        answer = httpx.post(
            f"{url}/event-types/{name}/events", content=b"[]", headers={**headers(url), **media}, timeout=WAIT_S
        )
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("route", ROUTES)
def test_requests_for_foreign_host_names_are_rejected(client, route):
    body = problem(called(client, route, headers={"Host": "evil.example:8080"}), 421, "allowed_hosts")
    assert "evil.example" in body["detail"]


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/console"),
        ("GET", "/console/"),
        ("GET", "/console/login"),
        ("POST", "/console/login"),
        ("POST", "/console/logout"),
        ("GET", "/console/event-types"),
        ("GET", "/console/api/event-types"),
        ("GET", "/console/static/0/console.css"),
        ("GET", "/console/moment"),
        ("GET", "/console/nowhere"),
        ("HEAD", "/console"),
        ("GET", "/health"),
        ("GET", "/livez"),
        ("GET", "/readyz"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("GET", "/nowhere"),
    ],
)
def test_foreign_host_names_are_rejected_on_every_path(client, method, path, accept):
    answer = client.request(method, path, headers={"Host": "evil.example:8080", "Accept": accept})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("host", "status"),
    rows(
        ("localhost", "localhost", 200),
        ("with a port", "localhost:8080", 200),
        ("in capitals", "LOCALHOST", 200),
        ("the usual address", "127.0.0.1:80", 200),
        ("another one of the same kind", "127.8.9.10", 200),
        ("of version 6", "[::1]:8080", 200),
        ("of version 6, mapped", "[::ffff:127.0.0.1]", 200),
        ("a name that begins so", "localhost.evil.example", 421),
        ("a name that ends so", "evil.localhost", 421),
        ("an address in a name", "127.0.0.1.evil.example", 421),
        ("all addresses", "0.0.0.0:8080", 421),
        ("another machine", "192.168.1.1", 421),
        ("another machine, version 6", "[2001:db8::1]", 421),
        ("a name as long as can be", "e" * 8_000, 421),
    ),
)
def test_loopback_addresses_are_reached_by_loopback_names(client, host, status):
    assert client.get("/event-types", headers={"Host": host}).status_code == status


def test_a_page_with_dns_rebinding_reads_and_changes_nothing(client, name, create):
    create(name)
    # To the browser the broker is the page's own site by then.
    headers = {"Host": "evil.example:8080", "Origin": "http://evil.example:8080", "Sec-Fetch-Site": "same-origin"}
    problem(client.get(f"/event-types/{name}", headers=headers), 421)
    problem(client.post(f"/event-types/{name}/events", json=[event()], headers=headers), 421)
    problem(client.delete(f"/event-types/{name}", headers=headers), 421)


@pytest.mark.one_server
def test_many_host_names_and_origins_change_nothing(server):
    """Three at once, with ten times as many names as are remembered."""

    def attack(attacker):
        with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
            headers = [
                {"Host": f"evil-{number}.example", "Origin": EVIL} for number in range(attacker, 10 * HOSTS_CACHED, 3)
            ]
            return {client.post("/event-types", headers=each).status_code for each in headers}

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(attack, range(3))) == [{421}] * 3
    assert httpx.get(f"{server.url}/event-types", timeout=WAIT_S).status_code == 200


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    """A server that requires tokens, accepts two host names, and trusts one site."""
    folder = tmp_path_factory.mktemp("strict")
    write_tokens(folder / "tokens.toml", {"good": {"uid": "shop"}})
    environment = {
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_DEFAULT_ADMIN": "service:shop",
        "RIONI_ALLOWED_ORIGINS": "https://app.example.org,http://localhost:3000",
        "RIONI_ALLOWED_HOSTS": "broker.example.org,[2001:db8::1]",
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as running:
        yield running


APP = {"Origin": "https://app.example.org", "Sec-Fetch-Site": "cross-site"}


@pytest.fixture
def stranger(strict):
    """A client of that server."""
    with httpx.Client(base_url=strict.url, timeout=WAIT_S, event_hooks={"response": [check]}) as client:
        yield client


def test_other_sites_are_rejected_before_tokens_are_checked(stranger):
    problem(stranger.post("/event-types", headers={"Origin": EVIL}), 403, "allowed_origins")
    problem(stranger.post("/event-types", headers={"Origin": EVIL, **bearer("good")}), 403, "allowed_origins")
    assert stranger.post("/event-types").status_code == 401


def test_a_page_of_a_listed_site_may_use_the_api(stranger, name):
    created = stranger.post("/event-types", json=event_type_body(name=name), headers=APP | bearer("good"))
    assert created.status_code == 201
    read = stranger.get(f"/event-types/{name}", headers=APP | bearer("good"))
    metrics = stranger.get("/metrics", headers=APP | bearer("good"))
    for answer in (created, read, metrics, stranger.get("/event-types", headers=APP)):
        assert answer.headers["Access-Control-Allow-Origin"] == APP["Origin"]
        assert "Origin" in answer.headers["Vary"]
    assert "X-Nakadi-StreamId" in read.headers["Access-Control-Expose-Headers"]


def test_only_preflight_requests_of_listed_sites_need_no_token(stranger):
    wanted = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-nakadi-streamid",
    }
    answer = stranger.options("/event-types", headers=APP | wanted)
    assert answer.status_code == 204
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert answer.headers["Access-Control-Allow-Headers"] == wanted["Access-Control-Request-Headers"]
    refused = stranger.options("/event-types", headers={"Origin": EVIL} | wanted)
    assert refused.status_code == 401
    assert "Access-Control-Allow-Origin" not in refused.headers
    assert stranger.options("/event-types", headers=APP).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 401) for name in ("broker.example.org", "Broker.Example.Org:443", "[2001:db8::1]:8080", "localhost")),
        *((name, 421) for name in ("evil.example", "example.org", "[2001:db8::2]")),
    ],
)
def test_only_listed_host_names_and_those_of_this_machine_are_accepted(stranger, host, status):
    assert stranger.get("/event-types", headers={"Host": host}).status_code == status


@pytest.fixture(scope="module")
def evil_site():
    """Another site, on this machine: an empty page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    with serving(site):
        yield f"http://127.0.0.1:{site.server_port}/"


POST = """async ([url, type]) => {
    const headers = type ? {"Content-Type": type} : {}
    await fetch(url, {method: "POST", mode: "no-cors", body: "[]", headers})
}"""


@needs_browser
@pytest.mark.one_server
def test_requests_of_a_real_browser_are_recognised(browser, evil_site, server, name, create, publish):
    create(name)
    context = browser.new_context()
    page, answers = context.new_page(), []
    page.on("response", lambda response: answers.append(response.status))
    page.goto(evil_site)
    path = f"/event-types/{name}/events"
    for media in ("text/plain", "application/x-www-form-urlencoded", None):
        answers.clear()
        page.evaluate(POST, [server.url + path, media])
        assert answers == [403]
    # Its own pages may, and a name that only resembles this machine's may not.
    page.goto(f"{server.url}/health")
    answers.clear()
    page.evaluate(POST, [server.url + path, "application/json"])
    assert answers == [200]
    port = urlsplit(server.url).port
    assert page.goto(f"http://evil.localhost:{port}/event-types").status == 421
    context.close()
