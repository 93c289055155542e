"""Login at an OpenID Connect provider that checks what it is sent, and with tokens of each source."""

import gzip
import itertools
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from rioni.console import bounded_transport
from rioni.console.login import NEXT_BYTES_MAX, Provider, ProviderFailed
from rioni.console.sessions import COOKIE_BYTES
from tests.console.conftest import Visitor
from tests.console.provider import OPAQUE, LoginProvider, claims_of, issuers
from tests.console.provider import provider as provider  # noqa: PLC0414 - a fixture
from tests.support.http_servers import serving
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR
from tests.support.web_tokens import token


@pytest.fixture(scope="module")
def broker_with_provider(provider, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "issuers.toml").write_text(issuers(provider))
    settings = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_ISSUERS": str(folder / "issuers.toml"),
        "RIONI_AUTH_TOKENINFO_REMOTE": f"{provider}/tokeninfo",
        "RIONI_CONSOLE_OIDC_ISSUER": provider,
        "RIONI_TRUSTED_PROXIES": "127.0.0.0/8",
    }
    with running_server(folder / "data", "--workers", "1", environment=settings) as running:
        yield running


@pytest.fixture
def visitor(broker_with_provider):
    LoginProvider.claims = {}
    with Visitor(broker_with_provider.url) as visitor:
        yield visitor


def _begin(visitor):
    """Go to the provider and back to the console: the address that the provider sends the browser to."""
    assert "/console/login/provider" in visitor.get("/console/login").text
    answer = visitor.get("/console/login/provider", params={"next": "/console/event-types"})
    assert answer.status_code == 303
    return visitor.get(answer.headers["location"]).headers["location"]


@pytest.mark.slow
def test_a_user_logs_in_at_the_provider(visitor):
    finished = visitor.get(_begin(visitor))
    assert finished.status_code == 200
    assert 'content="0;url=/console/event-types"' in finished.text
    assert visitor.get("/console/event-types").status_code == 200


@pytest.mark.slow
def test_the_provider_sends_the_browser_back_below_a_base_path(visitor):
    """reference common#base-path: whatever the path, and whether the proxy removes it."""
    prefix = {"X-Forwarded-Prefix": "/tools/broker"}
    assert "/tools/broker/console/login/provider?next=" in visitor.get("/console/login", headers=prefix).text
    for following, page in (("/tools/broker/console/audit", "/audit"), ("/console/audit", "")):
        begun = visitor.get("/console/login/provider", params={"next": following}, headers=prefix)
        assert "_login=" in begun.headers["set-cookie"]
        assert "; Path=/tools/broker;" in begun.headers["set-cookie"]
        back = visitor.get(begun.headers["location"]).headers["location"]
        assert urlsplit(back).path == "/tools/broker/console/login/callback"
        finished = visitor.get(back, headers=prefix)
        assert f'content="0;url=/tools/broker/console{page}"' in finished.text
        assert all("; Path=/tools/broker;" in each for each in finished.headers.get_list("set-cookie"))


@pytest.mark.slow
def test_a_login_that_this_browser_did_not_begin_is_refused(visitor, broker_with_provider):
    back = _begin(visitor)
    with Visitor(broker_with_provider.url) as other:
        assert "was not begun in this browser" in other.get(back).text
    forged = back.replace(parse_qs(urlsplit(back).query)["state"][0], "forged")
    assert visitor.get(forged).status_code == 403


@pytest.mark.slow
def test_a_code_is_worth_one_login(visitor):
    back = _begin(visitor)
    cookie = visitor.http.headers["Cookie"]
    assert visitor.get(back).status_code == 200
    visitor.http.headers["Cookie"] = cookie
    assert "refused the login" in visitor.get(back).text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"nonce": "another"}, "answered another login"),
        ({"nonce": None}, "answered another login"),
        ({"aud": "another"}, "answered another client than rioni"),
        ({"aud": ["another"]}, "answered another client than rioni"),
        ({"aud": {}}, "answered another client than rioni"),
        ({"iss": "https://other.example"}, "sent a token of another issuer"),
    ],
)
def test_a_token_of_another_login_client_or_issuer_is_refused(visitor, claims, said):
    LoginProvider.claims = claims
    answer = visitor.get(_begin(visitor))
    assert answer.status_code == 403
    assert said in answer.text


@pytest.mark.slow
def test_a_token_for_several_clients_logs_in(visitor):
    LoginProvider.claims = {"aud": ["another", "rioni"]}
    assert visitor.get(_begin(visitor)).status_code == 200


@pytest.mark.slow
def test_an_answer_of_another_provider_is_refused(visitor, provider):
    assert "answered instead of" in visitor.get(f"{_begin(visitor)}&iss=https://other.example").text
    assert visitor.get(f"{_begin(visitor)}&iss={provider}").status_code == 200


@pytest.mark.slow
def test_a_page_whose_address_no_cookie_can_hold_becomes_the_first_one(visitor):
    visitor.get("/console/login")
    following = "/console/event-types?q=" + "x" * NEXT_BYTES_MAX
    answer = visitor.get("/console/login/provider", params={"next": following})
    assert len(answer.headers["set-cookie"]) < COOKIE_BYTES
    back = visitor.get(answer.headers["location"]).headers["location"]
    assert 'content="0;url=/console"' in visitor.get(back).text


@pytest.mark.slow
def test_the_cookie_of_a_login_can_t_be_planted_over_https(visitor):
    answer = visitor.get("/console/login/provider", headers={"X-Forwarded-Proto": "https"})
    (cookie,) = [each for each in answer.headers.get_list("set-cookie") if "_login=" in each]
    assert cookie.startswith("__Host-")
    assert {"HttpOnly", "SameSite=Lax", "Secure", "Path=/"} <= set(cookie.split("; "))


class _Hostile(BaseHTTPRequestHandler):
    """Answers as a provider that can't be trusted; its paths say how."""

    asked = 0

    def do_GET(self):
        type(self).asked += 1
        kind = self.path.split("/")[1]
        compressed = gzip.compress(b" " * 10_000_000) if kind == "compressed" else None
        self.send_response(302 if kind == "redirect" else 200)
        if compressed:
            self.send_header("Content-Encoding", "gzip")
        if kind == "redirect":
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        pieces = {
            "compressed": [compressed],
            "drip": itertools.repeat(b" "),
            "huge": itertools.repeat(b" " * 65_536),
            "list": [b"[]"],
            "number": [b'{"issuer": 7}'],
            "other": [b'{"issuer": "https://other.example"}'],
            "text": [b"<html>"],
        }
        try:
            for piece in pieces.get(kind, []):
                self.wfile.write(piece)
                if kind == "drip":
                    time.sleep(0.01)
        except OSError:
            return

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def hostile():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hostile)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("kind", ["compressed", "drip", "huge", "list", "number", "other", "redirect", "text"])
def test_what_a_provider_answers_is_bounded_and_asked_for_once(hostile, monkeypatch, kind):
    monkeypatch.setattr(bounded_transport, "DEADLINE_S", 1.0)
    found, before = Provider(f"{hostile}/{kind}", "rioni", None, "openid", "access_token"), _Hostile.asked
    for _ in range(3):
        with pytest.raises(ProviderFailed, match=r"does not answer|is not the metadata"):
            found.begin("http://broker/callback", "/console")
    assert _Hostile.asked == before + 1


def test_all_logins_share_what_it_takes_long_to_read(hostile, monkeypatch):
    made, make = [], ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda **options: made.append(1) or make(**options))
    found = Provider(hostile, "rioni", None, "openid", "access_token")
    found._endpoint = lambda _name: f"{hostile}/authorize"
    for _ in range(20):
        found.begin("http://broker/callback", "/console")
    assert len(made) <= 1


@pytest.mark.slow
def test_a_refusal_of_the_provider_is_shown(visitor):
    back = _begin(visitor).replace("code=code", "error=access_denied&error_description=Not+you")
    answer = visitor.get(back)
    assert answer.status_code == 403
    assert "Not you" in answer.text


@pytest.mark.slow
def test_tokens_of_issuers_and_of_the_token_info_service_log_in(visitor, provider):
    for accepted in (token(claims_of(provider)), OPAQUE):
        assert visitor.log_in(accepted).status_code == 303
        assert visitor.get("/console/event-types").status_code == 200
        visitor.post("/console/logout", {})
    for refused in (token(claims_of(provider, exp=1)), token(claims_of("https://other.example")), "unknown"):
        assert "The broker refuses this token" in visitor.log_in(refused).text
        assert visitor.get("/console/event-types").status_code == 303
