"""Login at an OpenID Connect provider that checks what it is sent, and with tokens of each source."""

import base64
import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import pytest

from tests.console.conftest import Visitor
from tests.support.http_servers import serving
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR
from tests.support.web_tokens import AUDIENCE, jwk, token


OPAQUE = "token-that-the-service-knows"


def claims_of(issuer, **changes):
    """What a token of the provider says."""
    now = int(time.time())
    return {"iss": issuer, "aud": AUDIENCE, "sub": "jane", "scope": "uid", "nbf": now - 9, "exp": now + 99} | changes


class _Provider(BaseHTTPRequestHandler):
    """Knows one client, and gives codes for challenges that it verifies."""

    codes: ClassVar[dict[str, dict[str, str]]] = {}
    nonce = ""

    def do_GET(self):
        url = f"http://{self.headers['Host']}"
        path, _, query = self.path.partition("?")
        if path == "/.well-known/openid-configuration":
            endpoints = {"authorization_endpoint": f"{url}/authorize", "token_endpoint": f"{url}/token"}
            self._answer({"issuer": url, **endpoints})
        elif path == "/keys":
            self._answer({"keys": [jwk("RS")]})
        elif path == "/tokeninfo":
            known = self.headers["Authorization"] == f"Bearer {OPAQUE}"
            self._answer(
                {"uid": "joe", "scope": ["uid"]} if known else {"error": "invalid_token"}, 200 if known else 400
            )
        else:
            asked = dict(parse_qsl(query))
            assert (asked["client_id"], asked["response_type"]) == ("rioni", "code")
            assert asked["code_challenge_method"] == "S256"
            self.codes["code"] = asked
            back = urlencode({"code": "code", "state": asked["state"]})
            self.send_response(302)
            self.send_header("Location", f"{asked['redirect_uri']}?{back}")
            self.end_headers()

    def do_POST(self):
        url = f"http://{self.headers['Host']}"
        form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        asked = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if asked is None or base64.urlsafe_b64encode(digest).decode().rstrip("=") != asked["code_challenge"]:
            self._answer({"error": "invalid_grant"}, 400)
            return
        claims = claims_of(url)
        id_token = token(claims | {"nonce": type(self).nonce or asked["nonce"]})
        self._answer({"access_token": token(claims), "id_token": id_token, "token_type": "Bearer"})

    def _answer(self, body, status=200):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def provider():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def broker_with_provider(provider, tmp_path_factory):
    folder = tmp_path_factory.mktemp("oidc")
    issuers = f'[[issuer]]\nissuer = "{provider}"\naudience = "{AUDIENCE}"\njwks = "{provider}/keys"\n'
    (folder / "issuers.toml").write_text(issuers)
    settings = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_ISSUERS": str(folder / "issuers.toml"),
        "RIONI_AUTH_TOKENINFO_REMOTE": f"{provider}/tokeninfo",
        "RIONI_CONSOLE_OIDC_ISSUER": provider,
    }
    with running_server(folder / "data", "--workers", "1", environment=settings) as running:
        yield running


@pytest.fixture
def visitor(broker_with_provider):
    _Provider.nonce = ""
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
def test_a_token_of_another_login_is_refused(visitor):
    _Provider.nonce = "another"
    assert "answered another login" in visitor.get(_begin(visitor)).text


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
