"""Every page in a real browser after a login, in each mode of authentication, by token and at a provider."""

import re
import time
from contextlib import ExitStack
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from playwright.sync_api import expect

from rioni.console.sessions import SESSION_S
from tests.console.conftest import ADMIN
from tests.console.pages.test_page_account_rights import FREE, MAY, SECTION, SUBSCRIPTION_SECTION
from tests.console.provider import LoginProvider, issuers
from tests.console.provider import provider as provider  # noqa: PLC0414 - a fixture
from tests.console.sample import ADDRESSES
from tests.console.sample import sample as filled
from tests.support.browser import COUNT_MOVES, PATIENCE_MS, needs_browser
from tests.support.builders import event_type_body
from tests.support.modes import CLUSTER
from tests.support.nodes import running_nodes
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens


pytestmark = [needs_browser, pytest.mark.slow]

READER = "consumer"
"""A user who may read the sample, and hardly change anything; the token, too."""
USERS = {
    ADMIN: {"uid": "stups_nakadi", "realm": "services"},
    READER: {"uid": READER, "realm": "employees"},
}
"""By token."""
SCOPES = {"basic": ("uid",), "realm": ("uid",), "full": FULL_SCOPES}
"""The scopes of tokens in each mode, no more than they need."""
UNSEEN = {"/audit", "/audit/{position}", "/jobs"}
"""Pages that the reader may not see."""


class Way(NamedTuple):
    """How users log in."""

    mode: str
    at_provider: bool = False


WAYS = {**{mode: Way(mode) for mode in SCOPES}, "provider": Way("full", at_provider=True)}


class Secured(NamedTuple):
    """A broker that asks for a login, with something of each kind."""

    url: str
    client: object
    names: dict[str, str]


@pytest.fixture(scope="module")
def brokers(request, mode, provider, tmp_path_factory):
    """Returns the broker of a mode of authentication."""
    started = {}
    with ExitStack() as stack:

        def broker_of(auth_mode):
            if auth_mode not in started:
                folder = tmp_path_factory.mktemp(auth_mode)
                scopes = list(SCOPES[auth_mode])
                write_tokens(
                    folder / "tokens.toml", {token: {**user, "scopes": scopes} for token, user in USERS.items()}
                )
                (folder / "issuers.toml").write_text(issuers(provider))
                settings = {
                    **ADMINISTRATOR,
                    "RIONI_AUTH_MODE": auth_mode,
                    "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
                    "RIONI_AUTH_ISSUERS": str(folder / "issuers.toml"),
                    "RIONI_CONSOLE_OIDC_ISSUER": provider,
                }
                if mode == CLUSTER:
                    settings |= request.getfixturevalue("cluster_environment")()
                    server = running_nodes(folder / "data", environment=settings)
                else:
                    server = running_server(folder / "data", "--workers", "1", environment=settings)
                broker = stack.enter_context(server)
                sections = ({"authorization": SECTION}, {"authorization": SUBSCRIPTION_SECTION})
                names = stack.enter_context(filled(broker, token=ADMIN, sections=sections))
                # Sessions are those of a port, so users stay at one node.
                started[auth_mode] = Secured(broker.url, broker.client, names)
            return started[auth_mode]

        yield broker_of


@pytest.fixture(params=WAYS)
def way(request):
    """How the users of a test log in."""
    return WAYS[request.param]


@pytest.fixture
def secured(brokers, way):
    """The broker at which users log in."""
    return brokers(way.mode)


class User:
    """Someone with a browser, which remembers what went wrong and how far pages have moved."""

    def __init__(self, browser, broker, way, token):
        self.broker, self._way, self._token, self.errors = broker, way, token, []
        self._context = browser.new_context(base_url=broker.url, reduced_motion="reduce")
        self._context.set_default_timeout(PATIENCE_MS)
        self._context.on("console", self._told)
        self._context.on("weberror", lambda error: self.errors.append(str(error.error)))
        self._context.add_init_script(COUNT_MOVES)
        self.page = self._context.new_page()

    def close(self):
        self._context.close()

    def goes(self, address):
        """To a page, and returns the status of the answer."""
        return self.page.goto(f"/console{address.format(**self.broker.names)}").status

    def begins(self):
        """A session, at the page of the account."""
        self.goes("/account")
        self.logs_in()
        self.page.wait_for_url("**/console/account")

    def logs_in(self):
        """At the page for that, which is open."""
        if self._way.at_provider:
            user, scope = USERS[self._token], " ".join(SCOPES[self._way.mode])
            until_s = int(time.time()) + SESSION_S
            LoginProvider.user = {"sub": user["uid"], "realm": user["realm"], "scope": scope, "exp": until_s}
            self.page.get_by_role("link", name="Log in at localhost").click()
        else:
            self.page.get_by_label("Token").fill(self._token)
            self.page.get_by_role("button", name="Log in").click()

    def _told(self, message):
        # So browsers tell of pages that the reader may not see.
        is_refusal = self._token == READER and "status of 403" in message.text
        if message.type == "error" and not is_refusal:
            self.errors.append(message.text)


@pytest.fixture(scope="module")
def users(browser, brokers):
    """Returns a user who is logged in, the same for the same arguments."""
    known = {}

    def user(way, token):
        if (way, token) not in known:
            user = known[way, token] = User(browser, brokers(way.mode), way, token)
            user.begins()
        known[way, token].errors.clear()
        return known[way, token]

    yield user
    for each in known.values():
        each.close()


def moved(page):
    """How far the page has moved until it is drawn."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate("window.moved")


def test_every_page_is_shown_to_an_administrator(users, way):
    user = users(way, ADMIN)
    page = user.page
    for address in ADDRESSES:
        assert user.goes(address) == 200, address
        expect(page.locator("main h1")).to_be_visible()
        expect(page.get_by_role("link", name="Account")).to_be_visible()
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert page.locator(".needs, .banner.denied, .banner.failed").count() == 0, address
        assert moved(page) < 0.01, address
    assert not user.errors


def test_what_a_reader_may_not_see_or_do_is_said_on_each_page(users, way):
    user = users(way, READER)
    page, enabled, disabled = user.page, set(), set()
    for address in ADDRESSES:
        path = address.partition("?")[0]
        assert user.goes(address) == (403 if path in UNSEEN else 200), address
        expect(page.get_by_role("button", name="Log out")).to_be_visible()
        assert (page.get_by_text("You may not see this page").count() == 1) == (path in UNSEEN), address
        assert moved(page) < 0.01, address
        for action, reason in page.evaluate(
            """() => {
              document.querySelectorAll("main details").forEach(each => { each.open = true });
              return [...document.querySelectorAll("main button[name=action]")].map(button => {
                const described = button.closest("[aria-describedby]")?.getAttribute("aria-describedby");
                const reason = document.getElementById(described);
                const is_read = button.matches(":disabled") && reason?.checkVisibility();
                return [button.value, is_read ? reason.innerText : ""];
              });
            }"""
        ):
            (disabled if re.search(r"[Nn]eeds [A-Z]+ of th", reason) else enabled).add((path, action))
    allowed = MAY[READER] | FREE
    assert enabled == allowed
    assert disabled == MAY[ADMIN] - allowed
    assert not user.errors


def test_a_change_is_made_and_seen_in_the_live_view(users, way):
    user = users(way, ADMIN)
    page, rows = user.page, user.page.locator("#events tbody tr")
    # Not of the sample, whose stream would end for want of commits.
    name, schema = f"console.live.{uuid4()}", {"type": "json_schema", "schema": "{}"}
    body = event_type_body(
        name=name, category="undefined", enrichment_strategies=[], schema=schema, authorization=SECTION
    )
    events = f"/event-types/{name}/events"
    with user.broker.client(headers=bearer(ADMIN)) as api:
        api.post("/event-types", json=body).raise_for_status()
    user.goes(events)
    page.locator("[name=event]").fill('{"text": "typed"}')
    page.locator("[value=publish]").click()
    expect(page.locator(".banner.done")).to_contain_text("The event is published")
    before = rows.count()
    page.get_by_role("button", name="Live").click()
    page.get_by_text("Live: waiting for events").wait_for()
    with user.broker.client(headers=bearer(ADMIN)) as api:
        # The stream begins a moment after the click.
        for number in range(100):
            api.post(events, json=[{"text": str(number)}]).raise_for_status()
            if rows.count() > before:
                break
            page.wait_for_timeout(50)
    expect(page.locator("#tail-state")).to_contain_text(re.compile(r"Live: \d+ events"))
    assert not user.errors


def test_after_a_logout_each_page_asks_for_a_login_and_comes_back(browser, secured, way):
    user = User(browser, secured, way, READER)
    page = user.page
    user.begins()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/console/login")
    page.go_back()
    page.wait_for_url("**/console/login?next=*")
    for address in ADDRESSES:
        user.goes(address)
        login = urlsplit(page.url)
        assert login.path == "/console/login", address
        (following,) = parse_qs(login.query)["next"]
        assert following.rstrip("/") == f"/console{address.format(**secured.names)}".rstrip("/")
    address = "/event-types/{name}?tab=schema&against=1.0.0"
    user.goes(address)
    user.logs_in()
    page.wait_for_url(f"{secured.url}/console{address.format(**secured.names)}")
    assert not user.errors
    user.close()


@pytest.mark.parametrize("way", ["provider"], indirect=True)
def test_a_page_that_is_open_leads_to_the_login_when_the_session_ends(browser, secured, way):
    """Its links are followed by scripts, which can't go to the provider."""
    user = User(browser, secured, way, READER)
    page = user.page
    user.begins()
    user.goes("/subscriptions/{id}?tab=reset")
    page.context.clear_cookies()
    page.locator("[value=preview]").click()
    page.get_by_role("heading", name="The form is not of this session").wait_for()
    box = page.locator("main").bounding_box()
    assert box["x"] + box["width"] / 2 == pytest.approx(page.viewport_size["width"] / 2, abs=20)
    page.get_by_role("link", name="Log in").click()
    user.logs_in()
    page.wait_for_url("**/console")
    page.context.clear_cookies()
    page.get_by_role("link", name="Event types", exact=True).click()
    page.wait_for_url("**/console/login?next=*")
    user.logs_in()
    page.wait_for_url("**/console/event-types")
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    assert not user.errors
    user.close()
