import re

import httpx
import pytest

from tests.console.markup import forms
from tests.console.sample import sample as filled
from tests.support.browser import browser as browser  # noqa: PLC0414 - a fixture
from tests.support.builders import event_type_body
from tests.support.modes import CLUSTER, modes_of
from tests.support.nodes import running_nodes
from tests.support.server import open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, write_tokens
from tests.support.waiting import WAIT_S, wait_until


ADMIN, READER = "token-of-the-administrator", "token-of-a-reader"
ROLES = ("consumer", "publisher", "owner", "viewer", "writer", "operator", "administrator")
"""Users of the guarded broker whom sections or the broker's lists of administrators may name; each is its own token."""


def last_change(api: httpx.Client) -> int:
    """The position of the last entry of the audit trail that a user has caused; the broker adds others by itself."""
    entries = api.get("/audit").raise_for_status().json()["items"]
    return max((entry["position"] for entry in entries if entry["actor"] != "rioni"), default=-1)


def pytest_generate_tests(metafunc):
    """Run tests of a broker of this file in the modes given by `--mode`."""
    if "mode" in metafunc.fixturenames:
        metafunc.parametrize("mode", modes_of(metafunc), indirect=True, scope="package")


@pytest.fixture(scope="package")
def mode(request):
    """The kind of the brokers of this file: `embedded` or `cluster`."""
    return request.param


@pytest.fixture(scope="package")
def embedded_broker(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "1") as running:
        yield running


@pytest.fixture(scope="package")
def broker(request, mode):
    """A broker without authentication, for all tests of the console; each uses its own names."""
    return request.getfixturevalue({"embedded": "embedded_broker", CLUSTER: "cluster_nodes"}[mode])


@pytest.fixture(scope="package")
def guarded(request, mode, tmp_path_factory):
    """A broker that asks for tokens: of its administrator, of a user without special rights, and of each role."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = guarded_settings(folder)
    if mode == CLUSTER:
        settings |= request.getfixturevalue("cluster_environment")()
        server = running_nodes(folder / "data", environment=settings)
    else:
        server = running_server(folder / "data", "--workers", "1", environment=settings)
    with server as running:
        yield running


def guarded_settings(folder):
    """Settings of a broker that asks for such tokens, which are written to the folder."""
    scopes = {"scopes": list(FULL_SCOPES)}
    write_tokens(
        folder / "tokens.toml",
        {
            ADMIN: {"uid": "stups_nakadi", "realm": "services", **scopes},
            READER: {"uid": "jane", **scopes},
            **{role: {"uid": role, "realm": "employees", **scopes} for role in ROLES},
        },
    )
    return {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUTH_SERVICE_REALMS": "services",
    }


@pytest.fixture(scope="package")
def embedded_sample(embedded_broker):
    with filled(embedded_broker) as names:
        yield names


@pytest.fixture(scope="package")
def cluster_sample(cluster_nodes, shared_by_group):
    return shared_by_group.enter_context(filled(cluster_nodes))


@pytest.fixture(scope="package")
def sample(request, mode):
    """Something of each kind, with hostile texts; the values of the names in `sample.ADDRESSES`."""
    return request.getfixturevalue({"embedded": "embedded_sample", CLUSTER: "cluster_sample"}[mode])


def streams_of(api, path):
    """The ids of the open streams of a subscription."""
    items = api.get(f"{path}/stats").json()["items"]
    return {each["stream_id"] for item in items for each in item["partitions"]} - {""}


@pytest.fixture
def streamed(broker, api, sample):
    """The sample with a new stream: the one that it opened ends soon if tests redrove what that does not commit."""
    path = f"/subscriptions/{sample['id']}"
    for stream_id in streams_of(api, path):
        api.delete(f"{path}/streams/{stream_id}")
    wait_until(lambda: not streams_of(api, path))
    with broker.client() as other, open_stream(other, f"{path}/events"):
        wait_until(lambda: streams_of(api, path))
        yield sample


@pytest.fixture
def api(broker):
    """A client of the API."""
    with broker.client() as client:
        yield client


@pytest.fixture
def event_type(api):
    """Creates an event type and returns its name."""

    def create(name, **changes):
        changes = {"schema": {"type": "json_schema", "schema": "{}"}} | changes
        response = api.post("/event-types", json=event_type_body(name=name, **changes))
        assert response.status_code == 201, response.text
        return name

    return create


class Visitor:
    """A browser without scripts: keeps cookies, and sends forms with what they hold."""

    def __init__(self, url):
        self.http = httpx.Client(base_url=url, headers={"Accept": "text/html"}, verify=False, timeout=WAIT_S)

    def __enter__(self):
        return self

    def __exit__(self, *_ex):
        self.http.close()

    def get(self, path, **options):
        return self._kept(self.http.get(path, **options))

    def post(self, path, form, *, csrf=None, **options):
        data = {"csrf": self.csrf if csrf is None else csrf, **form}
        return self._kept(self.http.post(path, data=data, **options))

    def log_in(self, token):
        self.get("/console/login")
        return self.post("/console/login", {"token": token, "next": "/console/event-types"})

    def forms(self, path):
        """The forms of a page that change something."""
        return forms(self.get(path).text)

    @property
    def csrf(self):
        text = self.get("/console/login").text
        return re.search(r'name="csrf" value="([^"]+)"', text)[1]

    def _kept(self, response):
        # Cookies are for secure connections; browsers take loopback addresses for such, httpx does not.
        for cookie in response.headers.get_list("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.http.headers["Cookie"] = f"{name}={value}"
        return response


@pytest.fixture
def visitor(broker):
    """A browser without scripts, at the broker without authentication."""
    with Visitor(broker.url) as visitor:
        yield visitor


@pytest.fixture
def guest(guarded):
    """A browser without scripts, at the broker that asks for tokens."""
    with Visitor(guarded.url) as visitor:
        yield visitor


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    for name in ("broker", "guarded"):
        if report.failed and name in getattr(item, "funcargs", {}):
            lines = [line for line in item.funcargs[name].lines if "rror" in line]
            report.sections.append(("log of the broker", "\n".join(lines[-20:])))
    return report
