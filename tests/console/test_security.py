"""Sessions, forged requests and rights in the console."""

import time

import httpx
import msgspec
import pytest
from markupsafe import escape

from rioni.console.app import PAGES, create_console
from rioni.console.login import Pending, local_path
from rioni.console.security import CLIENT
from rioni.console.sessions import (
    COOKIE_BYTES,
    COOKIES_MAX,
    NOTICE_CHARACTERS_MAX,
    SESSION_S,
    TOKEN_BYTES_MAX,
    EndedSessions,
    LoginSession,
    Sessions,
    TokenTooLong,
    cookie_name,
    set_cookies,
)
from tests.console.conftest import ADMIN, READER, Visitor
from tests.console.sample import ADDRESSES
from tests.support.waiting import WAIT_S


SECRET = Sessions(lambda: b"secret")
NAME = "rioni_console"


def _cookies(session):
    pairs = (cookie.partition(";")[0].partition("=") for cookie in set_cookies(SECRET.seal(session), (), NAME))
    return {name: value for name, _, value in pairs}


def test_a_session_is_opened_as_it_was_sealed():
    for token in (None, "short", "x" * COOKIE_BYTES * 2):
        session = LoginSession.new(token)
        assert SECRET.open(_cookies(session), NAME) == session


def test_sessions_have_the_names_by_which_other_releases_know_them():
    """Users stay logged in during an upgrade, and whatever node answers."""
    assert [each.sealed_as for each in (LoginSession, Pending)] == ["Session", "Pending"]


def test_a_session_that_was_changed_or_sealed_by_others_is_none():
    cookies = _cookies(LoginSession.new("token"))
    changed = cookies[NAME][:-9] + ("a" if cookies[NAME][-9] != "a" else "b") + cookies[NAME][-8:]
    assert SECRET.open({NAME: changed}, NAME) is None
    assert Sessions(lambda: b"other").open(cookies, NAME) is None
    assert SECRET.open(cookies, "another") is None
    assert SECRET.open({}, NAME) is None
    assert SECRET.open({NAME: "\xff"}, NAME) is None


def test_a_session_that_is_sealed_again_ends_when_it_would_have_ended():
    session = msgspec.structs.replace(LoginSession.new("token"), begun_s=int(time.time()) - SESSION_S)
    assert SECRET.open(_cookies(session.telling("still there")), NAME) is None


def test_the_longest_session_fits_into_its_cookies():
    session = LoginSession.new("x" * (TOKEN_BYTES_MAX - 2)).telling("\0" * NOTICE_CHARACTERS_MAX * 2)
    assert len(session.notice) == NOTICE_CHARACTERS_MAX
    cookies = _cookies(session)
    assert SECRET.open(cookies, NAME) == session
    assert len(cookies) == COOKIES_MAX
    with pytest.raises(TokenTooLong):
        LoginSession.new("x" * TOKEN_BYTES_MAX)


def test_a_shorter_session_removes_the_cookies_of_a_longer_one():
    before = _cookies(LoginSession.new("x" * COOKIE_BYTES))
    removed = [cookie for cookie in set_cookies(SECRET.seal(LoginSession.new()), before, NAME) if "Max-Age=0" in cookie]
    assert removed[0].startswith("rioni_console.1=;")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("broker", "rioni_console"),
        ("broker:8080", "rioni_console_8080"),
        ("[::1]", "rioni_console"),
        ("[::1]:8080", "rioni_console_8080"),
        ("", "rioni_console"),
        ("broker:80; Domain=evil", "rioni_console"),
    ],
)
def test_brokers_at_other_ports_of_a_host_have_sessions_of_their_own(host, name):
    assert cookie_name(host, secure=False) == name
    assert cookie_name(host, secure=True) == f"__Host-{name}"
    assert cookie_name(host, secure=False, base_path="/a/b") == f"{name}-a-b"
    assert cookie_name(host, secure=True, base_path="/a/b") == f"__Secure-{name}-a-b"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/console/event-types?q=a", "/console/event-types?q=a"),
        ("/console", "/console"),
        ("https://evil.example", "/console"),
        ("//evil.example", "/console"),
        ("/console//evil.example", "/console"),
        ("/console/\\evil.example", "/console"),
        ("/console/../other", "/console"),
        ("/console/%2E./other?q=a", "/console"),
        ("/console/.", "/console"),
        ("/console?q=/../a", "/console?q=/../a"),
        ("/console/event-types/a..b", "/console/event-types/a..b"),
        ("/consoleevil", "/console"),
        ("", "/console"),
    ],
)
def test_after_a_login_the_browser_stays_in_the_console(text, path):
    assert local_path("", text) == path


def test_pages_ask_for_a_login(guest):
    answer = guest.get("/console/event-types", params={"q": "a"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/login?next=%2Fconsole%2Fevent-types%3Fq%3Da"
    assert guest.get("/console/event-types", params={"format": "json"}).status_code == 401
    assert guest.get("/console/api/event-types").status_code == 401


def test_a_token_logs_in_and_out(guest):
    assert guest.log_in("no such token").status_code == 422
    refused = guest.log_in("no-such-token")
    assert refused.status_code == 403
    assert "the token is not one that this broker accepts" in refused.text
    answer = guest.log_in(READER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/event-types")
    assert guest.get("/console/event-types").status_code == 200
    assert READER not in answer.text + str(answer.headers)
    guest.post("/console/logout", {})
    assert guest.get("/console/event-types").status_code == 303


class NothingEnded:
    """The sessions that have ended: none."""

    def has_ended(self, _session_id):
        return False


def test_a_copied_cookie_is_worth_nothing_after_the_logout(guest, guarded):
    """docs/operating/security.md: a logout ends the session, at all workers and nodes."""
    for leave in (lambda: guest.post("/console/logout", {}), lambda: guest.log_in(READER)):
        guest.log_in(READER)
        with Visitor(guarded.url) as thief:
            thief.http.headers["Cookie"] = guest.http.headers["Cookie"]
            csrf = thief.csrf
            assert thief.http.get("/console/event-types").status_code == 200
            leave()
            for _ in range(5):
                assert thief.http.get("/console/event-types").status_code == 303
                assert thief.http.get("/console/event-types", params={"format": "json"}).status_code == 401
                assert thief.http.get("/console/api/event-types").status_code == 401
                assert thief.http.post("/console/event-types", data={"csrf": csrf}).status_code == 403


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_token_that_is_not_valid_any_more_leads_from_each_page_to_the_login(address):
    def refusing(_environ, start_response):
        start_response("401 Unauthorized", [("Content-Type", "application/problem+json")])
        return [b'{"title": "Unauthorized", "detail": "The token has ended.", "status": 401}']

    console = create_console(refusing, SECRET, EndedSessions(NothingEnded()), needs_token=True)
    path = f"/console{address.format(name='a', id='b', position='1')}"
    with httpx.Client(transport=httpx.WSGITransport(app=console), base_url="http://broker", timeout=WAIT_S) as browser:
        browser.cookies.update(_cookies(LoginSession.new("ended")))
        answer = browser.get(path)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login")
        assert browser.get(path, params={"format": "json"}).status_code == 401


def test_a_login_begins_a_session_that_was_unknown_before(guest):
    before = guest.get("/console/login").headers["set-cookie"]
    csrf = guest.csrf
    after = guest.log_in(READER).headers["set-cookie"]
    assert before.partition(";")[0] != after.partition(";")[0]
    assert guest.csrf != csrf


def test_a_session_that_someone_else_planted_is_not_the_one_that_is_logged_in(guest, guarded):
    guest.get("/console/login")
    planted = guest.http.headers["Cookie"]
    guest.log_in(READER)
    with Visitor(guarded.url) as other:
        other.http.headers["Cookie"] = planted
        assert other.http.get("/console/event-types").status_code == 303
        guest.http.headers["Cookie"] = planted
        assert guest.http.get("/console/event-types").status_code == 303


def test_cookies_are_kept_from_scripts_other_sites_and_plain_connections(guest):
    cookie = guest.get("/console/login").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Secure", "Path=/"} <= set(cookie.split("; "))
    over_tls = guest.get("/console/login", headers={"X-Forwarded-Proto": "https", "Cookie": ""})
    assert over_tls.headers["set-cookie"].startswith("__Host-rioni_console_")


def test_over_https_a_session_that_another_host_of_the_domain_has_planted_is_ignored(guest):
    guest.log_in(READER)
    assert guest.http.get("/console/event-types").status_code == 200
    over_tls = guest.http.get("/console/event-types", headers={"X-Forwarded-Proto": "https"})
    assert over_tls.status_code == 303


@pytest.mark.parametrize(
    "other", ['{"a": 1}', 'a="b; c', "x=\xe9", "with space=1", "[]=1", "; =;;", "=", '__Host-x={"y":[1,"2"]}']
)
def test_cookies_of_other_applications_of_the_host_change_nothing(guest, other):
    guest.log_in(READER)
    own = guest.http.headers.pop("Cookie")
    for header in (f"{other}; {own}", f"{own}; {other}"):
        answer = guest.http.get("/console/event-types", headers=[(b"Cookie", header.encode("latin-1"))])
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers


def test_a_token_that_no_session_can_hold_is_refused(guest):
    answer = guest.log_in("x" * TOKEN_BYTES_MAX)
    assert answer.status_code == 422
    assert "characters at most" in answer.text


def test_a_link_of_another_site_keeps_the_session_of_the_browser(guest):
    """The browser sends no cookie with it; then it follows the link once more, from this site."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    for path in ("/", "/console", "/console/event-types?q=%22a%22", "/console/login"):
        answer = guest.get(path, headers=headers)
        assert answer.status_code == 200
        assert "set-cookie" not in answer.headers
        assert f'content="0;url={path.replace("&", "&amp;")}"' in answer.text
    guest.log_in(READER)
    assert guest.get("/console/event-types", headers=headers | {"Sec-Fetch-Site": "same-site"}).status_code == 200


@pytest.mark.parametrize("path", ["/console", "/console/event-types?as_of=1", "/console/static/0/console.js"])
def test_pages_of_other_sites_can_t_load_the_console(visitor, path):
    for mode in ("no-cors", "cors"):
        answer = visitor.get(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": mode})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
    ],
)
def test_forms_of_other_sites_are_refused(visitor, headers):
    assert visitor.post("/console/logout", {}, headers=headers).status_code == 403


@pytest.mark.parametrize("csrf", ["", "wrong"])
def test_forms_without_the_secret_of_the_session_are_refused(visitor, csrf):
    visitor.get("/console/login")
    assert visitor.post("/console/logout", {}, csrf=csrf).status_code == 403


TYPED = '\n {"typed": "</textarea><b>"}'


@pytest.mark.parametrize("way", ["no cookie", "another session"])
def test_what_was_typed_is_shown_again_where_the_session_has_ended(guest, way):
    guest.log_in(ADMIN)
    csrf = guest.csrf
    guest.log_in(ADMIN)
    if way == "no cookie":
        del guest.http.headers["Cookie"]
    for path in ("/console/event-types/no.such/events", "/console/settings"):
        answer = guest.post(path, {"action": "publish", "event": TYPED}, csrf=csrf)
        assert answer.status_code == 403
        assert f"\n{escape(TYPED)}</textarea>" in answer.text
        assert csrf not in answer.text
        forged = guest.post(path, {"event": TYPED}, csrf=csrf, headers={"Sec-Fetch-Site": "cross-site"})
        assert "typed" not in forged.text
    assert "secret-token" not in guest.post("/console/login", {"token": "secret-token"}, csrf="wrong").text


def test_what_was_typed_is_shown_again_where_the_token_has_ended():
    def refusing(_environ, start_response):
        start_response("401 Unauthorized", [("Content-Type", "application/problem+json")])
        return [b'{"title": "Unauthorized", "detail": "The token has ended.", "status": 401}']

    console = create_console(refusing, SECRET, EndedSessions(NothingEnded()), needs_token=True)
    session = LoginSession.new("ended")

    def app(environ, start_response):
        return console(environ | {CLIENT: "a client"}, start_response)

    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://broker", timeout=WAIT_S) as browser:
        browser.cookies.update(_cookies(session))
        for page in PAGES:
            for action in page.actions:
                form = {"csrf": session.csrf, "action": action, "event": TYPED, "definition": TYPED, "schema": "{}"}
                answer = browser.post("/console" + page.path.format(name="a", id="b"), data=form)
                assert answer.status_code == 401, (page.path, action)
                assert "Your session has ended" in answer.text
                assert f"\n{escape(TYPED)}</textarea>" in answer.text
                assert session.csrf not in answer.text


def test_pages_of_other_sites_do_not_read_the_api(visitor):
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert visitor.get("/console/api/event-types", headers=headers).status_code == 403
    assert visitor.get("/console/api/event-types").status_code == 200


def test_a_page_that_rebinds_its_name_to_the_broker_gets_nothing(visitor):
    headers = {"Host": "evil.example"}
    for path in ("/console/event-types", "/console/event-types?format=json", "/console/api/event-types"):
        answer = visitor.get(path, headers=headers)
        assert answer.status_code == 421, path
        assert "evil.example" in answer.text


def test_what_a_user_may_not_see_is_said(guest):
    guest.log_in(READER)
    assert "You may not see the history" in guest.get("/console").text
    guest.log_in(ADMIN)
    assert "You may not see" not in guest.get("/console").text
