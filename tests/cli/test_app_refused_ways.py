"""Tools are no other ways to an effect: they meet the refusals of the API, name what lacks, and change nothing.

Source: reference authorization#effects-and-ways, exit-codes#codes.
"""

import json

import httpx
import pytest

from tests.support.builders import event_type_body
from tests.support.dead_letters import KEEPING, dead_letter, write
from tests.support.server import running_server
from tests.support.tokens import FULL_SCOPES, bearer, write_tokens
from tests.support.waiting import WAIT_S


pytestmark = [pytest.mark.slow, pytest.mark.one_server]

ORDERS, TARGET = "refused.orders", "refused.target"
READ, WRITE, DEFINE = "nakadi.event_stream.read", "nakadi.event_stream.write", "nakadi.event_type.write"
BLOCKED = "is blocked"
SCOPE = "needs scope {}"
DEFINITION = f"""
name: {ORDERS}
owning_application: other
category: undefined
schema: {{type: json_schema, schema: '{{}}'}}
"""
REFUSALS = {
    "search": {"none": f"READ event-type:{ORDERS} denied", f"not-{READ}": SCOPE.format(READ), "blocked": BLOCKED},
    "tail": {"none": f"READ event-type:{ORDERS} denied", f"not-{READ}": SCOPE.format(READ), "blocked": BLOCKED},
    "publish": {"none": f"WRITE event-type:{ORDERS} denied", f"not-{WRITE}": SCOPE.format(WRITE), "blocked": BLOCKED},
    "copy": {
        "none": f"READ event-type:{ORDERS} denied",
        "reader": f"WRITE event-type:{TARGET} denied",
        f"not-{READ}": SCOPE.format(READ),
        f"not-{WRITE}": SCOPE.format(WRITE),
        "blocked": BLOCKED,
    },
    "archive": {"none": f"READ event-type:{ORDERS} denied", f"not-{READ}": SCOPE.format(READ), "blocked": BLOCKED},
    "redrive": {"none": "ADMIN subscription:", f"not-{WRITE}": SCOPE.format(WRITE), "blocked": BLOCKED},
    "apply": {"none": f"ADMIN event-type:{ORDERS} denied", f"not-{DEFINE}": SCOPE.format(DEFINE)},
    "tail a subscription": {"none": "READ subscription:", f"not-{READ}": SCOPE.format(READ), "blocked": BLOCKED},
    "reset": {"none": f"READ event-type:{ORDERS} denied", f"not-{READ}": SCOPE.format(READ), "blocked": BLOCKED},
}
"""By what a tool does and by who asks for it: what the error says."""


class World:
    """A broker that has something to read and to change, and what is there."""

    def __init__(self, url: str, subscription: str, client: httpx.Client) -> None:
        self.url, self.subscription, self._client = url, subscription, client

    def arguments(self, tool: str, folder) -> list[str]:
        """The command of a tool."""
        (folder / "events.jsonl").write_text('{"a": 3}\n')
        (folder / "orders.yaml").write_text(DEFINITION)
        return {
            "search": ["search", ORDERS, "--filter", "event.a == 1"],
            "tail": ["tail", ORDERS, "--last", "2", "--no-follow"],
            "publish": ["publish", ORDERS, str(folder / "events.jsonl")],
            "copy": ["copy", ORDERS, TARGET, "--state", str(folder / "state")],
            "archive": ["archive", "--event-type", ORDERS, "--to", str(folder / "lake"), "--once"],
            "redrive": ["dead-letters", "redrive", self.subscription],
            "apply": ["event-types", "apply", str(folder / "orders.yaml"), "--yes"],
            "tail a subscription": ["subscriptions", "consume", self.subscription],
            "reset": ["subscriptions", "reset", self.subscription, "--to", "begin", "--yes"],
        }[tool]

    def state(self) -> list[object]:
        """The data that tools might change."""
        paths = (
            f"/event-types/{ORDERS}",
            f"/event-types/{ORDERS}/partitions",
            f"/event-types/{TARGET}/partitions",
            f"/subscriptions/{self.subscription}/cursors",
            f"/subscriptions/{self.subscription}/dead-letters?only_open=true",
            "/audit?limit=1&actor=root",
        )
        return [self._client.get(path).raise_for_status().json() for path in paths]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    scopes = dict.fromkeys(("root", "none", "reader", "blocked"), FULL_SCOPES)
    scopes |= {f"not-{scope}": [each for each in FULL_SCOPES if each != scope] for scope in (READ, WRITE, DEFINE)}
    tokens = {
        token: {"uid": "root" if token.startswith("not-") else token, "realm": "services", "scopes": list(found)}
        for token, found in scopes.items()
    }
    write_tokens(folder / "tokens.toml", tokens)
    environment = {
        "RIONI_DEFAULT_ADMIN": "service:root",
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
    }
    with (
        running_server(folder / "data", "--workers", "1", environment=environment) as server,
        httpx.Client(base_url=server.url, headers=bearer("root"), timeout=WAIT_S, verify=False) as client,
    ):
        writers = [{"data_type": "service", "value": each} for each in ("root", "blocked")]
        readers = [*writers, {"data_type": "service", "value": "reader"}]
        rights = {"admins": writers, "readers": readers, "writers": writers}
        schema = {"type": "json_schema", "schema": "{}"}
        for name in (ORDERS, TARGET):
            body = event_type_body(name=name, category="undefined", enrichment_strategies=[], schema=schema)
            client.post("/event-types", json=body | {"authorization": rights}).raise_for_status()
        client.post(f"/event-types/{ORDERS}/events", json=[{"a": 1}, {"a": 2}]).raise_for_status()
        body = {"owning_application": "shop", "event_types": [ORDERS], "annotations": KEEPING}
        body["authorization"] = {"admins": writers, "readers": writers}
        subscription = client.post("/subscriptions", json=body).raise_for_status().json()["id"]
        write(client, [dead_letter(subscription, ORDERS, 0, {"a": 1})])
        for side in ("CONSUMER", "PRODUCER"):
            client.put(f"/settings/blacklist/{side}_APP/blocked").raise_for_status()
        yield World(server.url, subscription, client)


@pytest.mark.parametrize(
    ("tool", "who", "said"), [(tool, who, said) for tool, cases in REFUSALS.items() for who, said in cases.items()]
)
def test_a_tool_says_what_refuses_it_and_changes_nothing(run, world, tmp_path, monkeypatch, tool, who, said):
    monkeypatch.setenv("RIONI_URL", world.url)
    monkeypatch.setenv("RIONI_TOKEN", who)
    before = world.state()
    code, out, err = run(*world.arguments(tool, tmp_path))
    error = err.splitlines()[-1]
    assert (code, error[:7]) == (2, "Error: "), (out, err)
    assert "403" in error
    assert said in error
    assert "Traceback" not in err
    assert json.dumps(world.state()) == json.dumps(before)
    assert not list(tmp_path.glob("lake/**/*.parquet"))


@pytest.mark.parametrize("tool", ["search", "tail", "publish", "copy", "archive"])
def test_who_may_is_not_refused(run, world, tmp_path, monkeypatch, tool):
    """Otherwise the other test would find nothing."""
    monkeypatch.setenv("RIONI_URL", world.url)
    monkeypatch.setenv("RIONI_TOKEN", "root")
    code, _, err = run(*world.arguments(tool, tmp_path))
    assert code == 0, err
