"""The console and the API below a path of a reverse proxy: nothing leads out of it.

Source: reference common#base-path.
"""

import collections
import re
from pathlib import Path
from urllib.parse import parse_qsl, quote, urljoin, urlsplit

import httpx
import pytest
from playwright.sync_api import expect

from rioni.console import rendering
from tests.console.conftest import ADMIN, READER, ROLES, Visitor, guarded_settings
from tests.console.prefixed import addresses, is_within, links
from tests.console.sample import ADDRESSES
from tests.console.sample import sample as filled
from tests.support.browser import browser as browser  # noqa: PLC0414 - a fixture
from tests.support.browser import needs_browser
from tests.support.prefix_proxy import prefix_proxy
from tests.support.server import RunningServer, running_server
from tests.support.tokens import bearer
from tests.support.waiting import WAIT_S


PREFIX = "/tools/broker-1"
"""The base path of the setting."""
OTHER = "/nearby"
"""The base path of the header."""
TRUSTED = "127.0.0.2"
"""The address of the only proxy whose header counts."""
WAYS = {
    f"{name}, {'removed' if strips else 'left'}": (prefix, strips)
    for name, prefix in (("setting", PREFIX), ("header", OTHER))
    for strips in (True, False)
}
"""How the broker knows the path, and whether the proxy removes it from requests."""
PAGES_MAX = 2_000
MOMENT = "1"
"""The moment for the console's view of the past."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker below a path, at its root."""
    folder = tmp_path_factory.mktemp("prefixed")
    environment = guarded_settings(folder) | {
        "RIONI_BASE_PATH": PREFIX,
        "RIONI_TRUSTED_PROXIES": f"10.0.0.0/8,{TRUSTED}",
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as running:
        assert running.url.endswith(PREFIX)
        yield RunningServer(running.process, running.url.removesuffix(PREFIX), running.lines)


@pytest.fixture(scope="module")
def sample(broker):
    """Something of each kind: what the braces of addresses stand for."""
    with filled(broker, token=ADMIN) as names:
        yield names


@pytest.fixture(params=WAYS)
def proxy(request, broker):
    """A proxy before the broker, of each kind."""
    prefix, strips = WAYS[request.param]
    port, says = urlsplit(broker.url).port, prefix == OTHER
    address = TRUSTED if says else "127.0.0.1"
    with prefix_proxy(port, prefix, strips=strips, says=says, address=address) as running:
        yield running


@pytest.fixture
def trusted(broker):
    """A client whose header counts."""
    with httpx.Client(
        base_url=broker.url, transport=httpx.HTTPTransport(local_address=TRUSTED), timeout=WAIT_S
    ) as http:
        yield http


def path_of(url):
    """The path of a page, the same one for all entries of the audit trail."""
    return re.sub(r"/audit/\d+$", "/audit/0", urlsplit(url).path.rstrip("/"))


def kind_of(url):
    """The parts that all addresses of a page have in common: the path, the names in the query, and the tab."""
    query = dict(parse_qsl(urlsplit(url).query))
    return path_of(url), frozenset(query), query.get("tab")


def crawl(visitor, proxy, begin):
    """Follow all links of the console; returns the paths of the pages, and what leads out of the prefix."""
    waiting, seen, outside = collections.deque(begin), set(), set()
    while waiting:
        url = waiting.popleft()
        if kind_of(url) in seen:
            continue
        seen.add(kind_of(url))
        assert len(seen) < PAGES_MAX
        answer = visitor.http.get(url)
        assert answer.status_code != 500, url
        outside |= {(url, each) for each in addresses(answer) if not is_within(each, proxy.broker_url)}
        for each in links(answer):
            # Each moment of its past is the whole console once more.
            moment = re.search(r"[?&]as_of=([^&]*)", each)
            if not moment or moment[1] == MOMENT:
                waiting.append(each.partition("#")[0])
    return {path for path, _, _ in seen}, outside


NO_PATHS = (
    "x",
    "//x",
    "/x//y",
    "/x/..",
    "/./x",
    "/x y",
    "/x%2fy",
    "https://evil.example/x",
    "/a, /b",
    "/console",
    "/event-types/x",
    "/x\ty",
    "/x?y",
    "/x;y",
    "/<b>",
    "/" + "x" * 200,
)
USERS = [
    *((way, token) for way in WAYS for token in (None, ADMIN)),
    *(("header, removed", token) for token in (READER, *ROLES)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("proxy", "token"), USERS, indirect=["proxy"])
def test_nothing_of_the_console_leads_out_of_its_path(proxy, sample, token):
    prefix, url = proxy.prefix, proxy.broker_url
    pages = {f"{prefix}/console{address.format(**sample)}" for address in ADDRESSES}
    begin = [url, f"{url}/docs", f"{url}/console/no-such-page", f"{url}/console/event-types?as_of={MOMENT}"]
    if token != ADMIN:
        # A user who sees everything reaches these pages by links.
        begin += [proxy.url + page for page in pages]
    with Visitor(url) as visitor:
        if token is not None:
            answer = visitor.log_in(token)
            assert answer.headers["location"] == f"{prefix}/console"
            assert all(f"; Path={prefix};" in each for each in answer.headers.get_list("set-cookie"))
        paths, outside = crawl(visitor, proxy, begin)
        assert not outside
        assert f"{prefix}/console/login" in paths if token is None else {*map(path_of, pages)} <= paths
        if token is not None:
            answer = visitor.post("/console/logout", {})
            assert answer.headers["location"] == f"{prefix}/console/login"
    assert not proxy.strayed


@pytest.mark.slow
def test_redirects_after_a_login_and_a_change_stay_below_the_path(proxy):
    prefix = proxy.prefix
    with Visitor(proxy.broker_url) as visitor:
        asked = visitor.get("/console/event-types?q=a")
        wanted = f"{prefix}/console/event-types?q=a"
        assert asked.headers["location"] == f"{prefix}/console/login?next={quote(wanted, safe='')}"
        form = visitor.forms(asked.headers["location"].removeprefix(prefix))[0]
        assert form.address == f"{prefix}/console/login"
        answer = visitor.post("/console/login", form.fields | {"token": ADMIN})
        assert answer.headers["location"] == wanted
        blocked = {"action": "block", "kind": "CONSUMER_APP", "name": "base-path"}
        answer = visitor.post("/console/settings", blocked)
        assert (answer.status_code, answer.headers["location"]) == (303, f"{prefix}/console/settings")
        moment = visitor.get("/console/moment?as_of=1&newest=9")
        assert moment.headers["location"] == f"{prefix}/console?as_of=1"
        part = visitor.http.get("/console/login", params={"next": wanted}, headers={"HX-Request": "true"})
        assert part.headers["hx-redirect"].startswith(f"{prefix}/console/login?")
        navigation = {"Cookie": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        foreign = visitor.http.get("/console/audit", headers=navigation)
        assert f'content="0;url={prefix}/console/audit"' in foreign.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "following",
    [
        "/console/event-types",
        "/tools/other/console",
        "{}x/console",
        "{}/consolex",
        "{}//evil.example/console",
        "{}/console/../../../other",
        "{}/console/%2e%2E/%2E./other",
        "{}/console/..\\..\\other",
        "/{}/console",
        "//evil.example{}/console",
        "https://evil.example{}/console",
    ],
)
def test_a_login_leads_to_no_other_page_of_the_host(proxy, following):
    with Visitor(proxy.broker_url) as visitor:
        answer = visitor.post("/console/login", {"token": READER, "next": following.format(proxy.prefix)})
        assert answer.headers["location"] == f"{proxy.prefix}/console"


@pytest.mark.slow
def test_links_of_the_api_stay_below_the_path_and_lead_on(proxy, sample):
    prefix = proxy.prefix
    with Visitor(proxy.broker_url) as visitor:
        visitor.log_in(ADMIN)
        given = hrefs(visitor.get("/console/api/audit?limit=1"))
        assert httpx.get(f"{proxy.broker_url}/console/api/audit", timeout=WAIT_S).json()["detail"] == (
            f"Log in at {prefix}/console/login."
        )
    with httpx.Client(base_url=proxy.broker_url, headers=bearer(ADMIN), timeout=WAIT_S) as api:
        body = {"owning_application": f"of{proxy.url}", "event_types": [sample["name"]]}
        made, again = (api.post("/subscriptions", json=body) for _ in range(2))
        given += [made.headers["location"], made.headers["content-location"], again.headers["location"]]
        given += hrefs(api.get("/subscriptions?limit=1"))
        given += hrefs(api.get("/subscriptions?limit=1&token=new"))
        given += hrefs(api.get("/audit?limit=1"))
        given += hrefs(api.get(f"/event-types/{sample['name']}/schemas?limit=1&offset=1"))
        given += re.findall("<([^>]*)>", api.get("/event-types?limit=1&offset=1").headers["link"])
        assert len(given) >= 9
        for each in given:
            assert each.startswith(f"{prefix}/"), each
            answer = httpx.get(urljoin(proxy.url, each), headers=bearer(ADMIN), timeout=WAIT_S)
            assert answer.status_code in (200, 401), each
        assert [each["url"] for each in api.get("/openapi.json").json()["servers"]] == [prefix]
        assert api.get("/nothing").json()["detail"] == f"No resource at {prefix}/nothing"


def hrefs(answer):
    return [each["href"] for each in answer.raise_for_status().json()["_links"].values()]


@pytest.mark.slow
def test_a_broker_below_a_path_answers_at_the_root_as_well(broker):
    """Health checks need not know the path."""
    with httpx.Client(base_url=broker.url, headers=bearer(READER), timeout=WAIT_S) as http:
        for path in ("/health", f"{PREFIX}/health"):
            assert http.get(path).status_code == 200
        for path in ("/", PREFIX, f"{PREFIX}/"):
            answer = http.get(path, headers={"Accept": "text/html"})
            assert answer.headers["location"] == f"{PREFIX}/console", path
        assert http.get(f"{PREFIX}x/health").status_code == 404
        assert http.get(f"{PREFIX}{PREFIX}/health").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("given", ["/other", "/other/", "/a/b/c", "no path"])
def test_a_prefix_of_a_peer_that_is_no_trusted_proxy_has_no_effect(broker, given):
    headers = {"X-Forwarded-Prefix": given, **bearer(READER)}
    with httpx.Client(base_url=broker.url, headers=headers, timeout=WAIT_S) as http:
        answer = http.get("/console/login")
        assert f'"{PREFIX}/console/login"' in answer.text
        assert all(is_within(each, broker.url + PREFIX) for each in addresses(answer))
        assert http.get("/openapi.json").json()["servers"][0]["url"] == PREFIX
        assert http.get("/other/health").status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "base"),
    [("/x", "/x"), ("/x/", "/x"), ("/x/y.z~_-9", "/x/y.z~_-9"), ("/", ""), ("", PREFIX), (None, PREFIX)],
)
def test_a_prefix_of_a_trusted_proxy_is_taken_from_each_request(trusted, given, base):
    headers = {} if given is None else {"X-Forwarded-Prefix": given}
    answer = trusted.get(f"{base}/console/login", headers=headers)
    assert f'"{base}/console/login"' in answer.text
    assert f"; Path={base or '/'};" in answer.headers["set-cookie"]


@pytest.mark.slow
@pytest.mark.parametrize("given", NO_PATHS)
def test_a_prefix_that_is_no_path_is_refused(trusted, given):
    for path in ("/", "/console/login", "/event-types", "/health", "/docs"):
        answer = trusted.get(path, headers={"X-Forwarded-Prefix": given, "Accept": "text/html, application/json"})
        assert answer.status_code == 400, path
        assert "X-Forwarded-Prefix must be a path" in answer.text
        is_page = answer.headers["content-type"].startswith("text/html")
        assert is_page == (path in ("/", "/console/login"))
        assert not is_page or "<b>" not in answer.text


@pytest.mark.slow
def test_over_https_the_cookie_is_for_the_path_alone(broker):
    answer = httpx.get(f"{broker.url}/console/login", headers={"X-Forwarded-Proto": "https"}, timeout=WAIT_S)
    name = f"__Secure-rioni_console_{urlsplit(broker.url).port}-tools-broker-1"
    assert answer.headers["set-cookie"].startswith(f"{name}=")
    assert {"Secure", "HttpOnly", f"Path={PREFIX}"} <= set(answer.headers["set-cookie"].split("; "))


@pytest.mark.parametrize("pattern", ["templates/*.jinja", "static/*.js", "static/*.css"])
def test_no_address_is_written_without_the_base_path(pattern):
    files = [*Path(rendering.__file__).parent.glob(pattern)]
    assert files
    for file in files:
        text = file.read_text()
        assert not re.findall(
            r"""["'`(]/(?:console|docs|log)\b|\b(?:href|src|action|hx-\w+|data-\w+)=["']?/""", text
        ), file


@pytest.fixture
def page(browser, proxy):
    """A page of a new browser where an administrator has logged in; nothing may fail there, or leave the prefix."""
    context = browser.new_context()
    page, errors = context.new_page(), []
    page.asked = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(proxy.broker_url)
    page.wait_for_url(f"{proxy.broker_url}/console/login?next=*")
    page.get_by_label("Token").fill(ADMIN)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{proxy.broker_url}/console")
    yield page
    assert {cookie["path"] for cookie in context.cookies()} == {proxy.prefix}
    context.close()
    assert [url for url in page.asked if not is_within(url, proxy.broker_url)] == []
    assert not errors
    assert not proxy.strayed


@needs_browser
@pytest.mark.slow
def test_charts_commands_and_the_slider_find_the_broker(page, proxy, sample):
    page.locator("#charts canvas").first.wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type(sample["name"])
    page.get_by_role("dialog").get_by_role("link", name=sample["name"], exact=True).click()
    page.wait_for_url(f"{proxy.broker_url}/console/event-types/{sample['name']}")
    page.goto(f"{proxy.broker_url}/console/audit")
    page.get_by_label("The whole console as it was after entry").focus()
    page.keyboard.press("Home")
    expect(page.locator(".moment output")).to_contain_text("UTC, ")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{proxy.broker_url}/console/login")
    for wanted in ("/metrics/history?", "/event-types?", "/audit?"):
        assert any(url.startswith(f"{proxy.broker_url}/console/api{wanted}") for url in page.asked), wanted


@needs_browser
@pytest.mark.slow
def test_events_come_and_are_published_below_the_path(page, proxy, sample):
    path = f"/event-types/{sample['name']}/events"
    page.goto(f"{proxy.broker_url}/console{path}")
    rows = page.locator("#events tbody tr")
    before = rows.count()
    page.get_by_role("button", name="Live").click()
    page.get_by_text("Live: waiting for events").wait_for()
    with httpx.Client(base_url=proxy.broker_url, headers=bearer(ADMIN), timeout=WAIT_S) as api:
        # The stream begins a moment after the click.
        for _ in range(600):
            api.post(path, json=[{"text": "x"}]).raise_for_status()
            if rows.count() > before:
                break
            page.wait_for_timeout(50)
    assert rows.count() > before
    page.get_by_role("button", name="Pause").click()
    page.locator("textarea[name=event]").fill('{"text": "by the form"}')
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("The event is published").wait_for()
    assert any(url.startswith(f"{proxy.broker_url}/console/api{path}?") for url in page.asked)
