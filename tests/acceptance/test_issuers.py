"""Several OpenID Connect issuers: none of them can issue the identities of another one."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.acceptance.conftest import problem
from tests.support.http_servers import serving
from tests.support.server import running_server
from tests.support.tokens import bearer
from tests.support.web_tokens import AUDIENCE, jwk, token


KEYS = {"staff": "RS", "partner": "EC", "tools": "ED"}
"""The key of each issuer."""
ISSUERS = """
[[issuer]]
issuer = "https://staff.example"
audience = "{audience}"
jwks = "{url}/staff"
attributes = ["user:*"]

[[issuer]]
issuer = "https://tools.example"
audience = "{audience}"
jwks = "{url}/tools"
algorithms = ["EdDSA"]
realms = ["services"]
attributes = ["service:operations", "service:shop-*"]

[[issuer]]
issuer = "https://partner.example"
audience = "{audience}"
jwks = "{url}/partner"
algorithms = ["ES256"]
uid_prefix = "partner/"
attributes = ["service:partner/*"]
"""


@pytest.fixture(scope="module")
def keys():
    """A server with the keys of each issuer."""

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [jwk(KEYS[self.path[1:]])]}).encode())

        def log_message(self, *_):
            pass

    service = ThreadingHTTPServer(("127.0.0.1", 0), Keys)
    with serving(service):
        yield f"http://127.0.0.1:{service.server_port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory, keys):
    folder = tmp_path_factory.mktemp("issuers")
    (folder / "issuers.toml").write_text(ISSUERS.format(audience=AUDIENCE, url=keys))
    environment = {
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_ISSUERS": str(folder / "issuers.toml"),
        "RIONI_DEFAULT_ADMIN": "service:operations",
    }
    with running_server(folder / "data", "--workers", "1", environment=environment) as running:
        yield running


def token_headers(issuer, uid, realm):
    """The headers of a client with a token of an issuer."""
    now_s = int(time.time())
    claims = {"iss": f"https://{issuer}.example", "aud": AUDIENCE, "sub": uid, "realm": realm, "scope": "uid"}
    claims |= {"nbf": now_s - 10, "exp": now_s + 600}
    algorithm = {"RS": "RS256", "EC": "ES256", "ED": "EdDSA"}[KEYS[issuer]]
    return bearer(token(claims, key=KEYS[issuer], algorithm=algorithm))


def test_the_administrator_comes_from_one_issuer_alone(client):
    assert client.get("/settings/admins", headers=token_headers("tools", "operations", "services")).status_code == 200
    for issuer, realm in (("staff", "services"), ("partner", "services"), ("staff", "/services"), ("tools", "users")):
        refused = client.get("/settings/admins", headers=token_headers(issuer, "operations", realm))
        assert refused.status_code in (401, 403), issuer
    problem(client.get("/event-types", headers=token_headers("staff", "operations", "services")), 401)
    problem(client.get("/settings/admins", headers=token_headers("partner", "operations", "services")), 403)


@pytest.mark.parametrize(
    ("issuer", "uid", "realm", "status"),
    [
        ("staff", "alice", "employees", 200),
        ("staff", "shop-1", "services", 401),
        ("tools", "shop-1", "services", 200),
        ("tools", "shop", "services", 401),
        ("tools", "shop-1", "employees", 401),
        ("partner", "shop-1", "services", 200),
        ("partner", "alice", "employees", 401),
    ],
)
def test_each_issuer_issues_only_its_own_identities(client, issuer, uid, realm, status):
    assert client.get("/event-types", headers=token_headers(issuer, uid, realm)).status_code == status
