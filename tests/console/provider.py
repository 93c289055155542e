"""An OpenID Connect provider that checks what it is sent."""

import base64
import hashlib
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qsl, urlencode

import pytest

from tests.support.http_servers import serving
from tests.support.web_tokens import AUDIENCE, jwk, token


OPAQUE = "token-that-the-service-knows"


def claims_of(issuer, **changes):
    """The claims of the provider's tokens."""
    now = int(time.time())
    return {"iss": issuer, "aud": AUDIENCE, "sub": "jane", "scope": "uid", "nbf": now - 9, "exp": now + 99} | changes


def issuers(url):
    """The file of issuers of a broker that accepts the provider's tokens."""
    return f'[[issuer]]\nissuer = "{url}"\naudience = "{AUDIENCE}"\njwks = "{url}/keys"\n'


class LoginProvider(BaseHTTPRequestHandler):
    """Knows one client, and gives codes for challenges that it verifies."""

    codes: ClassVar[dict[str, dict[str, str]]] = {}
    claims: ClassVar[dict[str, object]] = {}
    """Other ones of the id token."""
    user: ClassVar[dict[str, object]] = {}
    """Other ones of the access token."""

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
        claims = claims_of(url, **self.user)
        id_token = token(claims | {"nonce": asked["nonce"], "aud": "rioni"} | self.claims)
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
    """The URL of a provider: at `localhost`, which for browsers is another site than the broker at `127.0.0.1`."""
    LoginProvider.claims = LoginProvider.user = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), LoginProvider)
    with serving(server):
        yield f"http://localhost:{server.server_port}"
