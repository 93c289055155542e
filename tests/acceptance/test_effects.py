"""Each effect, and each way to it: all ways share the checks of the effect, and each check alone refuses a request.

The roles of each operation are in test_authorization.py. Here one subject has all rights and scopes, and one thing at a
time is taken away or forbidden; where the table says that this does not concern a way, its answer stays as it was.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.acceptance.conftest import event
from tests.console.conftest import Visitor
from tests.support.builders import SCHEMA, event_type_body
from tests.support.server import running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens


ET, COMPACTED = "effects.orders", "effects.compacted"
TYPES, CONFIG = "nakadi.event_type.write", "nakadi.config.write"
IN, OUT = "nakadi.event_stream.write", "nakadi.event_stream.read"
PRODUCER, CONSUMER = "PRODUCER", "CONSUMER"
SHOP = [{"data_type": "user", "value": "shop"}]
READS, OWNS = ({"data_type": "user", "value": uid} for uid in ("reads", "owns"))
"""Who may read the event type but not administer or use the subscription, and the reverse."""
SECTION = {"admins": SHOP, "readers": [*SHOP, READS], "writers": SHOP}
SUBSCRIPTION = {
    "owning_application": "effects",
    "event_types": [ET],
    "authorization": {"admins": [*SHOP, OWNS], "readers": [*SHOP, OWNS]},
}
DEFINITION = event_type_body(name=ET, authorization=SECTION)
COMPACTION = {
    "name": COMPACTED,
    "cleanup_policy": "compact",
    "partition_strategy": "hash",
    "partition_key_fields": ["order_id"],
}
LETTERS = "/subscriptions/{subscription}/dead-letters"


@dataclass(frozen=True)
class Way:
    """A way to an effect, and what may forbid it beside a missing right."""

    effect: str
    method: str
    path: str
    scope: str
    sides: frozenset[str] = frozenset()
    """Of the blacklist, which concern it."""
    writes: bool = False
    """Whether the feature `disable_db_write_operations` forbids it."""
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    event_type: str = ET

    def __str__(self):
        return f"{self.effect}: {self.method} {self.path}"


BOTH = frozenset((PRODUCER, CONSUMER))
IN_SIDE, OUT_SIDE = frozenset((PRODUCER,)), frozenset((CONSUMER,))
WAYS = [
    Way("store", "POST", f"/event-types/{ET}/events", IN, IN_SIDE, body=[event()]),
    Way("store", "POST", f"/event-types/{COMPACTED}/deleted-events", IN, IN_SIDE, body=[{}], event_type=COMPACTED),
    Way("store", "POST", f"{LETTERS}/redrive", IN, BOTH, writes=True, body={}),
    Way("read", "GET", f"/event-types/{ET}/events", OUT, OUT_SIDE, headers={"X-Nakadi-Cursors": "[]"}),
    Way("read", "GET", "/subscriptions/{subscription}/events", OUT, OUT_SIDE),
    Way("read", "POST", "/subscriptions/{subscription}/events", OUT, OUT_SIDE, body={}),
    Way("read", "GET", LETTERS, OUT, OUT_SIDE),
    Way("read", "POST", f"{LETTERS}/redrive/preview", OUT, BOTH, writes=True, body={}),
    Way("define", "PUT", f"/event-types/{ET}", TYPES, writes=True, body=DEFINITION),
    Way("define", "POST", f"/event-types/{ET}/schemas", TYPES, body={"type": "json_schema", "schema": SCHEMA}),
    Way("define", "DELETE", f"/event-types/{ET}", CONFIG, writes=True),
    Way("define", "PUT", "/subscriptions/{subscription}", OUT, writes=True, body=SUBSCRIPTION),
    Way("who did what", "GET", "/audit", "uid"),
    Way("who did what", "GET", "/audit/denials", "uid"),
    Way("who did what", "GET", "/log/checkpoint", "uid"),
]
REFUSED = (403, 503)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server, a client, and the id of a subscription."""
    folder = tmp_path_factory.mktemp("effects")
    tokens = {
        "shop": {"uid": "shop", "realm": "employees", "scopes": list(FULL_SCOPES)},
        "stranger": {"uid": "stranger", "realm": "employees", "scopes": list(FULL_SCOPES)},
        "reads": {"uid": "reads", "realm": "employees", "scopes": list(FULL_SCOPES)},
        "owns": {"uid": "owns", "realm": "employees", "scopes": list(FULL_SCOPES)},
        "namesake": {"uid": "shop", "realm": "services", "scopes": list(FULL_SCOPES)},
        "default_admin": {"uid": "stups_nakadi", "realm": "services", "scopes": list(FULL_SCOPES)},
    }
    tokens |= {
        f"not-{scope}": {"uid": "shop", "realm": "employees", "scopes": [*({*FULL_SCOPES} - {scope})]}
        for scope in FULL_SCOPES
    }
    write_tokens(folder / "tokens.toml", tokens)
    environment = {
        "RIONI_AUTH_MODE": "full",
        **ADMINISTRATOR,
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_AUTH_SERVICE_REALMS": "services",
        "RIONI_AUDIT_READERS": "user:shop",
    }
    with (
        running_server(folder / "data", "--workers", "1", environment=environment) as server,
        server.client() as client,
    ):
        for body in (DEFINITION, DEFINITION | COMPACTION):
            created = client.post("/event-types", json=body, headers=bearer("default_admin"))
            assert created.status_code == 201, created.text
        created = client.post("/subscriptions", json=SUBSCRIPTION, headers=bearer("shop"))
        assert created.status_code == 201, created.text
        yield server, client, created.json()["id"]


def ask(guarded, way, token="shop"):
    """The status of an answer, without what follows in a stream, and the detail of a refusal."""
    _, client, subscription = guarded
    path = way.path.format(subscription=subscription)
    with client.stream(way.method, path, json=way.body, headers=bearer(token) | way.headers) as answer:
        return answer.status_code, answer.read().decode() if answer.status_code in REFUSED else ""


def administer(guarded, method, path, body=None):
    """Do what an administrator may."""
    answer = guarded[1].request(method, path, json=body, headers=bearer("default_admin"))
    assert answer.status_code == 204, answer.text


@contextlib.contextmanager
def blacklisted(guarded, kind, name):
    """Forbid something to an application, or for an event type."""
    administer(guarded, "PUT", f"/settings/blacklist/{kind}/{name}")
    try:
        yield
    finally:
        administer(guarded, "DELETE", f"/settings/blacklist/{kind}/{name}")


@contextlib.contextmanager
def read_only(guarded):
    """Switch changes off."""
    feature = {"feature": "disable_db_write_operations"}
    administer(guarded, "POST", "/settings/features", feature | {"enabled": True})
    try:
        yield
    finally:
        administer(guarded, "POST", "/settings/features", feature | {"enabled": False})


@pytest.fixture(params=[way for way in WAYS if way.method != "DELETE"], ids=str)
def way(request):
    return request.param


@pytest.fixture(params=WAYS, ids=str)
def any_way(request):
    """A deletion, too, for requests that must be refused."""
    return request.param


def test_who_has_all_rights_is_refused_nothing(guarded, way):
    assert ask(guarded, way)[0] not in REFUSED


@pytest.mark.parametrize("token", ["stranger", "namesake"])
def test_without_the_right_each_way_is_closed(guarded, any_way, token):
    assert ask(guarded, any_way, token)[0] == 403


@pytest.mark.parametrize("token", ["reads", "owns"])
@pytest.mark.parametrize("way", [way for way in WAYS if "subscription" in way.path and way.effect != "define"], ids=str)
def test_one_of_two_rights_is_not_enough_on_any_way_through_a_subscription(guarded, way, token):
    assert ask(guarded, way, token)[0] == 403


def test_without_the_scope_each_way_is_closed_and_the_scope_is_named(guarded, any_way):
    status, detail = ask(guarded, any_way, f"not-{any_way.scope}")
    assert status == 403
    assert f"needs scope {any_way.scope}; the token has " in detail


@pytest.mark.parametrize("side", [PRODUCER, CONSUMER])
@pytest.mark.parametrize("kind", ["APP", "ET"])
def test_what_the_blacklist_forbids_is_forbidden_on_each_way(guarded, way, side, kind):
    with blacklisted(guarded, f"{side}_{kind}", "shop" if kind == "APP" else way.event_type):
        status, _ = ask(guarded, way)
        assert (status == 403) == (side in way.sides), status


def test_while_changes_are_switched_off_so_is_each_way_to_them(guarded, any_way):
    if any_way.method == "DELETE" and not any_way.writes:
        pytest.fail("a deletion changes something")
    with read_only(guarded):
        status, _ = ask(guarded, any_way)
        assert (status == 503) == any_way.writes, status


@pytest.mark.parametrize("missing", ["right", "scope"])
def test_the_console_is_no_other_way_past_a_check(guarded, way, missing):
    if way.method != "GET":
        return
    server, _, subscription = guarded
    token = "stranger" if missing == "right" else f"not-{way.scope}"
    with Visitor(server.url) as visitor:
        if visitor.log_in(token).status_code != 303:
            # A token without the scope `uid` can't log in at all.
            assert way.scope == "uid"
            return
        assert visitor.get("/console/api" + way.path.format(subscription=subscription)).status_code == 403
