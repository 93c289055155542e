"""Sessions, forged requests and rights in the console."""

import pytest

from rioni.console.login import local_path
from rioni.console.sessions import COOKIE_BYTES, COOKIES_MAX, Session, Sessions, set_cookies
from tests.console.conftest import ADMIN, READER, Visitor


SECRET = Sessions(lambda: b"secret")


def _header(session, sessions=SECRET):
    return "; ".join(cookie.partition(";")[0] for cookie in set_cookies(sessions.seal(session), "", secure=True))


def test_a_session_is_opened_as_it_was_sealed():
    for token in (None, "short", "x" * COOKIE_BYTES * 3):
        session = Session.new(token)
        assert SECRET.open(_header(session)) == session


def test_a_session_that_was_changed_or_sealed_by_others_is_none():
    header = _header(Session.new("token"))
    assert SECRET.open(header[:-9] + "a" + header[-8:]) is None
    assert Sessions(lambda: b"other").open(header) is None
    assert SECRET.open("") is None
    assert SECRET.open("rioni_console=\xff; =;;") is None


def test_a_token_that_no_cookies_can_hold_is_refused():
    sealed = SECRET.seal(Session.new("x" * COOKIE_BYTES * COOKIES_MAX))
    with pytest.raises(ValueError, match="too long"):
        list(set_cookies(sealed, "", secure=True))


def test_a_shorter_session_removes_the_cookies_of_a_longer_one():
    before = _header(Session.new("x" * COOKIE_BYTES))
    removed = [
        cookie for cookie in set_cookies(SECRET.seal(Session.new()), before, secure=True) if "Max-Age=0" in cookie
    ]
    assert removed[0].startswith("__Host-rioni_console.1=;")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/console/event-types?q=a", "/console/event-types?q=a"),
        ("/console", "/console"),
        ("https://evil.example", "/console"),
        ("//evil.example", "/console"),
        ("/console//evil.example", "/console"),
        ("/console/\\evil.example", "/console"),
        ("/consoleevil", "/console"),
        ("", "/console"),
    ],
)
def test_after_a_login_the_browser_stays_in_the_console(text, path):
    assert local_path(text) == path


def test_pages_ask_for_a_login(guest):
    answer = guest.get("/console/event-types", params={"q": "a"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/console/login?next=%2Fconsole%2Fevent-types%3Fq%3Da"
    assert guest.get("/console/event-types", params={"format": "json"}).status_code == 401
    assert guest.get("/console/api/event-types").status_code == 401


def test_a_token_logs_in_and_out(guest):
    assert guest.log_in("no such token").status_code == 403
    answer = guest.log_in(READER)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/event-types")
    assert guest.get("/console/event-types").status_code == 200
    assert READER not in answer.text + str(answer.headers)
    guest.post("/console/logout", {})
    assert guest.get("/console/event-types").status_code == 303


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
    assert over_tls.headers["set-cookie"].startswith("__Host-rioni_console=")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
    ],
)
def test_forms_of_other_sites_are_refused(visitor, headers):
    assert visitor.post("/console/logout", {}, headers=headers).status_code == 403


@pytest.mark.parametrize("csrf", ["", "wrong"])
def test_forms_without_the_secret_of_the_session_are_refused(visitor, csrf):
    visitor.get("/console/login")
    assert visitor.post("/console/logout", {}, csrf=csrf).status_code == 403


def test_pages_of_other_sites_do_not_read_the_api(visitor):
    headers = {"Sec-Fetch-Site": "cross-site"}
    assert visitor.get("/console/api/event-types", headers=headers).status_code == 403
    assert visitor.get("/console/api/event-types").status_code == 200


def test_what_a_user_may_not_see_is_said(guest):
    guest.log_in(READER)
    assert "You may not see the history" in guest.get("/console").text
    guest.log_in(ADMIN)
    assert "You may not see" not in guest.get("/console").text
