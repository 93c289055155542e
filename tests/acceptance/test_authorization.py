"""Authorization: every operation with every role.

Source: reference authorization#rights, subscriptions#fields, streams#checks.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rioni.http.middleware.authentication import PUBLIC, scope_of
from rioni.http.openapi.paths.audit import HISTORICAL
from tests.acceptance.conftest import event
from tests.support.builders import SCHEMA, event_type_body
from tests.support.routes import routed
from tests.support.server import open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, bearer, write_tokens


ET, COMPACTED = "authz.guarded", "authz.compacted"
STREAM_ID = "b2f7d7b0-92f5-4c55-9a68-0e7bb7a6a0cc"
COMMIT = {"items": [{"event_type": ET, "partition": "0", "offset": "BEGIN", "cursor_token": "x"}]}
FAILURES = {"items": [{"event_type": ET, "partition": "0", "offset": "BEGIN", "reason": "x"}]}
NOTHING = {"items": []}
STREAM = {"X-Nakadi-StreamId": STREAM_ID}
KNOWN = {"type": "json_schema", "schema": SCHEMA}
X = {"name": "x"}


def attribute(uid, data_type="user"):
    return {"data_type": data_type, "value": uid}


ROLES = {
    "stranger": {"uid": "stranger", "realm": "employees"},
    "namesake": {"uid": "admin", "realm": "services"},
    "reader": {"uid": "reader", "realm": "employees"},
    "writer": {"uid": "writer", "realm": "employees"},
    "admin": {"uid": "admin", "realm": "employees"},
    "subscriber": {"uid": "subscriber", "realm": "employees"},
    "subscription_admin": {"uid": "subscription_admin", "realm": "employees"},
    "broker_reader": {"uid": "broker_reader", "realm": "employees"},
    "broker_writer": {"uid": "broker_writer", "realm": "employees"},
    "broker_admin": {"uid": "broker_admin", "realm": "employees"},
    "analyst": {"uid": "analyst", "realm": "employees"},
    "auditor": {"uid": "auditor", "realm": "employees"},
    "default_admin": {"uid": "stups_nakadi", "realm": "services"},
}
"""The roles: three named by the event type, two named by the subscription, those of the broker, and others."""
SECTION = {"admins": [attribute("admin")], "readers": [attribute("reader")], "writers": [attribute("writer")]}
SUBSCRIPTION_SECTION = {
    "admins": [attribute("subscription_admin")],
    "readers": [attribute("subscriber"), attribute("reader")],
}
ADMINS = {
    "admins": [attribute("broker_admin")],
    "readers": [attribute("broker_reader")],
    "writers": [attribute("broker_writer")],
}
SUBSCRIPTION = {"owning_application": "authz", "event_types": [ET], "authorization": SUBSCRIPTION_SECTION}

DEFINITION = event_type_body(name=ET, authorization=SECTION)
COMPACTION = {
    "name": COMPACTED,
    "cleanup_policy": "compact",
    "partition_strategy": "hash",
    "partition_key_fields": ["order_id"],
}

EVERYBODY = frozenset(ROLES)
READERS = frozenset({"reader", "broker_reader", "analyst", "default_admin"})
WRITERS = frozenset({"writer", "broker_writer", "default_admin"})
ADMINISTRATORS = frozenset({"admin", "broker_writer", "default_admin"})
SUBSCRIBERS = frozenset({"reader", "subscriber", "broker_reader", "default_admin"})
STREAMERS = frozenset({"reader", "broker_reader", "default_admin"})
OWNERS = frozenset({"subscription_admin", "broker_admin", "default_admin"})
READING_OWNERS = frozenset({"default_admin"})
"""The roles that may administer the subscription, and also read its event types."""
BROKER_READERS = frozenset({"broker_reader", "default_admin"})
AUDITORS = frozenset({"auditor", "broker_admin", "broker_reader", "default_admin"})
BROKER_WRITERS = frozenset({"broker_writer", "default_admin"})
BROKER_ADMINS = frozenset({"broker_admin", "default_admin"})

READ, WRITE, ADMIN = (f"Access on {operation} event-type:{ET} denied" for operation in ("READ", "WRITE", "ADMIN"))
DELETION = f"Access on WRITE event-type:{COMPACTED} denied"
VIA = "Access on READ subscription:{subscription} denied"
OWN = "Access on ADMIN subscription:{subscription} denied"
SETTINGS = "Admin privileges are required to perform this operation"
HISTORY = "The history is for administrators and readers of the broker, and those whom the setting audit_readers names"
STORAGES = "Admin privileges required to perform this operation"

UID = "uid"
TYPES, CONFIG = "nakadi.event_type.write", "nakadi.config.write"
IN, OUT = "nakadi.event_stream.write", "nakadi.event_stream.read"


@dataclass(frozen=True)
class Case:
    """An operation: the roles that may do it, the status for them, and the error for all others."""

    operation: str
    scope: str
    allowed: frozenset[str]
    status: int
    denial: str = ""
    body: Any = None
    values: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    or_else: str = ""
    """The error for roles that lack the second right, if there are two."""


SHOWN_TO_AUDITORS = frozenset(
    {
        "GET /event-types/{name}/timelines",
        "GET /settings/admins",
        "GET /settings/blacklist",
        "GET /settings/features",
        "GET /storages",
        "GET /storages/{storage_id}",
    }
)
"""Operations whose present answer only the broker's readers see, and past ones all who may read history."""

CASES = [
    Case("GET /event-types", UID, EVERYBODY, 200),
    Case("POST /event-types", TYPES, EVERYBODY, 422, body={}),
    Case("GET /event-type-facets", UID, EVERYBODY, 200),
    Case(
        "POST /filter-evaluations", UID, EVERYBODY, 200, body={"filter": "event.a > 1", "events": []}
    ),
    Case("POST /stream-tickets", OUT, EVERYBODY, 201, body={"path": "/event-types/x/events"}),
    Case("GET /event-types/{name}", UID, EVERYBODY, 200),
    Case("PUT /event-types/{name}", TYPES, ADMINISTRATORS, 200, ADMIN, body=DEFINITION),
    Case("DELETE /event-types/{name}", CONFIG, ADMINISTRATORS, 409, ADMIN),
    Case("POST /event-types/{name}/events", IN, WRITERS, 200, WRITE, body=[]),
    Case("GET /event-types/{name}/events", OUT, READERS, 412, READ, headers={"X-Nakadi-Cursors": "[]"}),
    Case("POST /event-types/{name}/deleted-events", IN, WRITERS, 422, DELETION, [{}], values={"name": COMPACTED}),
    Case("POST /event-types/{name}/cursor-distances", OUT, READERS, 200, READ, body=[]),
    Case("POST /event-types/{name}/cursors-lag", OUT, READERS, 200, READ, body=[]),
    Case("POST /event-types/{name}/shifted-cursors", OUT, READERS, 200, READ, body=[]),
    Case("GET /event-types/{name}/partitions", OUT, READERS, 200, READ),
    Case("GET /event-types/{name}/partitions/{partition}", OUT, READERS, 200, READ),
    Case("GET /event-types/{name}/consumers", UID, EVERYBODY, 200),
    Case("GET /event-types/{name}/producers", UID, EVERYBODY, 200),
    Case("GET /event-types/{name}/schemas", UID, EVERYBODY, 200),
    Case("POST /event-types/{name}/schemas", TYPES, ADMINISTRATORS, 200, ADMIN, body=KNOWN),
    Case("GET /event-types/{name}/schemas/{version}", UID, EVERYBODY, 200),
    Case("POST /event-types/{name}/schemas/{version}/compatibility-check", TYPES, EVERYBODY, 200, body=KNOWN),
    Case("GET /event-types/{name}/timelines", UID, BROKER_READERS, 200, SETTINGS),
    Case("POST /event-types/{name}/timelines", TYPES, BROKER_WRITERS, 422, ADMIN, body={"storage_id": "nowhere"}),
    Case("PUT /event-types/{name}/partition-count", TYPES, BROKER_WRITERS, 204, ADMIN, body={"partition_count": 1}),
    Case("POST /event-types/{name}/partition-count", TYPES, BROKER_WRITERS, 204, ADMIN, body={"partition_count": 1}),
    Case("GET /subscriptions", OUT, EVERYBODY, 200),
    Case("POST /subscriptions", OUT, EVERYBODY, 200, body=SUBSCRIPTION),
    Case("GET /subscriptions/{subscription_id}", OUT, EVERYBODY, 200),
    Case("PUT /subscriptions/{subscription_id}", OUT, OWNERS, 204, OWN, body=SUBSCRIPTION),
    Case("DELETE /subscriptions/{subscription_id}", OUT, OWNERS, 204, OWN),
    Case("GET /subscriptions/{subscription_id}/stats", OUT, EVERYBODY, 200),
    Case("GET /subscriptions/{subscription_id}/ended-streams", OUT, EVERYBODY, 200),
    Case("GET /subscriptions/{subscription_id}/cursors", OUT, EVERYBODY, 200),
    Case("POST /subscriptions/{subscription_id}/cursors", OUT, SUBSCRIBERS, 422, VIA, body=COMMIT, headers=STREAM),
    Case("DELETE /subscriptions/{subscription_id}/streams/{stream_id}", OUT, SUBSCRIBERS, 404, VIA),
    Case("POST /subscriptions/{subscription_id}/streams/{stream_id}/failures", OUT, SUBSCRIBERS, 422, VIA, FAILURES),
    Case("GET /subscriptions/{subscription_id}/dead-letters", OUT, READING_OWNERS, 200, OWN, or_else=READ),
    Case("POST /subscriptions/{subscription_id}/dead-letters/redrive", IN, READING_OWNERS, 200, OWN, {}, or_else=READ),
    Case(
        "POST /subscriptions/{subscription_id}/dead-letters/redrive/preview",
        OUT,
        READING_OWNERS,
        200,
        OWN,
        body={},
        or_else=READ,
    ),
    Case("PATCH /subscriptions/{subscription_id}/cursors", OUT, OWNERS, 204, OWN, body=NOTHING),
    Case("GET /audit", UID, AUDITORS, 200, HISTORY),
    Case("GET /audit/denials", UID, AUDITORS, 200, HISTORY),
    Case("GET /log/checkpoint", UID, AUDITORS, 200, HISTORY),
    Case("POST /log/cosignatures", UID, AUDITORS, 400, HISTORY, body={}),
    Case("GET /log/key", UID, AUDITORS, 200, HISTORY),
    Case("GET /log/keys", UID, AUDITORS, 200, HISTORY),
    Case("GET /log/proof/consistency", UID, AUDITORS, 422, HISTORY),
    Case("GET /log/proof/inclusion", UID, AUDITORS, 422, HISTORY),
    Case("GET /log/tile/{level}/{rest}", UID, AUDITORS, 404, HISTORY, values={"level": "9", "rest": "000"}),
    Case("GET /jobs", UID, AUDITORS, 200, HISTORY),
    Case("PUT /jobs/{job_id}", UID, EVERYBODY, 422, body={}, values={"job_id": STREAM_ID}),
    Case("GET /rebuilds", UID, AUDITORS, 200, HISTORY),
    Case("GET /rebuilds/{rebuild_id}", UID, AUDITORS, 404, HISTORY, values={"rebuild_id": "none"}),
    Case("GET /settings/admins", UID, BROKER_READERS, 200, SETTINGS),
    Case("POST /settings/admins", UID, BROKER_ADMINS, 200, SETTINGS, body=ADMINS),
    Case("GET /settings/blacklist", UID, BROKER_READERS, 200, SETTINGS),
    Case("PUT /settings/blacklist/{blacklist_type}/{name}", UID, BROKER_WRITERS, 204, SETTINGS, values=X),
    Case("DELETE /settings/blacklist/{blacklist_type}/{name}", UID, BROKER_WRITERS, 204, SETTINGS, values=X),
    Case("GET /settings/features", UID, BROKER_READERS, 200, SETTINGS),
    Case("POST /settings/features", UID, BROKER_WRITERS, 204, SETTINGS, body={"feature": "access_log_enabled"}),
    Case("GET /storages", UID, BROKER_READERS, 200, STORAGES),
    Case("POST /storages", UID, BROKER_WRITERS, 409, SETTINGS, body={"id": "default", "storage_type": "embedded"}),
    Case("PUT /storages/default/{storage_id}", UID, BROKER_WRITERS, 200, SETTINGS),
    Case("GET /storages/{storage_id}", UID, BROKER_READERS, 200, STORAGES),
    Case("DELETE /storages/{storage_id}", UID, BROKER_WRITERS, 400, SETTINGS),
    Case("GET /rights", UID, EVERYBODY, 200),
    Case("GET /registry/enrichment-strategies", UID, EVERYBODY, 200),
    Case("GET /registry/partition-strategies", UID, EVERYBODY, 200),
    Case("GET /avro-schemas/{name}/versions", UID, EVERYBODY, 404),
    Case("GET /avro-schemas/{name}/versions/{version}", UID, EVERYBODY, 404),
    Case("GET /metrics", UID, EVERYBODY, 200),
    Case("GET /metrics/history", UID, EVERYBODY, 200),
    Case("GET /nodes", UID, BROKER_READERS, 200, SETTINGS),
    Case("GET /version", UID, EVERYBODY, 200),
]  # fmt: skip
STREAMS = [
    Case("GET /subscriptions/{subscription_id}/events", OUT, STREAMERS, 200),
    Case("POST /subscriptions/{subscription_id}/events", OUT, STREAMERS, 200, body={}),
]
"""Two rights are needed, one for the subscription and one for the event type."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with a guarded event type and a token of each role; yields a client and the ids of two subscriptions."""
    folder = tmp_path_factory.mktemp("guarded")
    write_tokens(folder / "tokens.toml", ROLES | {"no-scope": {"uid": "reader", "scopes": ["other"]}})
    environment = {
        "RIONI_AUTH_MODE": "basic",
        **ADMINISTRATOR,
        "RIONI_AUTH_TOKENS": str(folder / "tokens.toml"),
        "RIONI_ALL_DATA_ACCESS": "service:nobody,user:analyst",
        "RIONI_AUDIT_READERS": "service:nobody,user:auditor",
    }
    with (
        running_server(folder / "data", "--workers", "1", environment=environment) as server,
        server.client() as client,
    ):
        client.headers = bearer("default_admin")
        assert client.post("/settings/admins", json=ADMINS).status_code == 200
        for body in (DEFINITION, DEFINITION | COMPACTION):
            created = client.post("/event-types", json=body)
            assert created.status_code == 201, created.text
        created = client.post("/subscriptions", json=SUBSCRIPTION)
        assert created.status_code == 201, created.text
        client.headers = {}
        yield client, created.json()["id"]


def ask(client, case, subscription, token):
    """Do an operation with a token."""
    method, template = case.operation.split()
    values = {
        "name": ET,
        "partition": "0",
        "subscription_id": subscription,
        "blacklist_type": "CONSUMER_APP",
        "storage_id": "default",
        "version": "1.0.0",
        "stream_id": STREAM_ID,
    }
    path = template.format(**values | case.values)
    return client.request(method, path, json=case.body, headers=bearer(token) | case.headers)


def subscribe(client, consumer_group):
    """A new subscription."""
    body = SUBSCRIPTION | {"consumer_group": consumer_group}
    response = client.post("/subscriptions", json=body, headers=bearer("stranger"))
    assert response.status_code == 201, response.text
    return response.json()["id"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operation)
def test_operations_are_allowed_as_roles_require(guarded, case):
    """Every operation, requested with every role.

    Source: reference subscriptions#rights, authorization#registry-rights, authorization#event-rights,
    authorization#broker-rights, authorization#broker-administrators, authorization#all-data-access,
    authorization#denials, authorization#sections, authorization#order-of-answers.
    """
    client, subscription = guarded
    answers = {}
    for role in ROLES:
        doomed = subscription
        if case.operation == "DELETE /subscriptions/{subscription_id}":
            doomed = subscribe(client, role)
        answer = ask(client, case, doomed, role)
        answers[role] = answer.status_code
        if role not in case.allowed:
            denials = {each.format(subscription=doomed) for each in (case.denial, case.or_else) if each}
            assert answer.json()["detail"] in denials
    assert answers == {role: case.status if role in case.allowed else 403 for role in ROLES}


def test_clients_see_the_rights_that_the_operations_require(guarded):
    """Reference authorization#own-rights."""
    client, subscription = guarded
    rights = {}
    for role in ROLES:
        query = {"event_type": ET, "subscription_id": subscription}
        answer = client.get("/rights", params=query, headers=bearer(role)).json()
        assert answer.pop("subject") == ROLES[role]["uid"]
        assert set(answer.pop("operations").values()) <= {"allowed", "right"}
        for kind, listed in answer.items():
            for right in listed:
                rights.setdefault(f"{kind} {right}", set()).add(role)
    assert rights == {
        "broker READ": BROKER_READERS,
        "broker WRITE": BROKER_WRITERS,
        "broker ADMIN": BROKER_ADMINS,
        "broker HISTORY": AUDITORS,
        "event_type READ": READERS,
        "event_type WRITE": WRITERS,
        "event_type ADMIN": ADMINISTRATORS,
        "subscription READ": SUBSCRIBERS,
        "subscription STREAM": STREAMERS,
        "subscription ADMIN": OWNERS,
        "subscription REDRIVE": OWNERS & READERS,
    }
    assert set(client.get("/rights", headers=bearer("stranger")).json()) == {"subject", "broker", "operations"}
    for unknown in ({"event_type": "no.such"}, {"subscription_id": "no-such"}):
        assert client.get("/rights", params=unknown, headers=bearer("stranger")).status_code == 404


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.operation.removeprefix("GET ") in HISTORICAL],
    ids=lambda case: case.operation,
)
def test_the_past_is_shown_to_those_who_may_read_what_is_now(guarded, case):
    """Reference audit#rights-to-the-past."""
    client, subscription = guarded
    now = int(client.get("/audit?limit=1", headers=bearer("auditor")).headers["Log-Position"])
    past = replace(case, operation=f"{case.operation}?as_of={now}")
    answers = {role: ask(client, past, subscription, role).status_code for role in ROLES}
    allowed = case.allowed | AUDITORS if case.operation in SHOWN_TO_AUDITORS else case.allowed
    assert answers == {role: case.status if role in allowed else 403 for role in ROLES}


def test_what_no_longer_exists_is_shown_to_those_who_may_read_history(guarded, name):
    """Reference audit#rights-to-the-past, audit#rights-to-history."""
    client, _ = guarded
    admin = bearer("default_admin")
    assert client.post("/event-types", json=event_type_body(name=name), headers=admin).status_code == 201
    subscription = {"owning_application": name, "event_types": [name]}
    subscription_id = client.post("/subscriptions", json=subscription, headers=admin).json()["id"]
    now = client.get("/audit?limit=1", headers=admin).headers["Log-Position"]
    assert client.delete(f"/subscriptions/{subscription_id}", headers=admin).status_code == 204
    assert client.delete(f"/event-types/{name}", headers=admin).status_code == 200
    for path in (f"/event-types/{name}", f"/event-types/{name}/schemas", f"/subscriptions/{subscription_id}"):
        answers = {role: client.get(path, params={"as_of": now}, headers=bearer(role)).status_code for role in ROLES}
        assert answers == {role: 200 if role in AUDITORS else 404 for role in ROLES}
    for role in ROLES:
        event_types = client.get("/event-types", params={"as_of": now, "name": name}, headers=bearer(role)).json()
        wanted = {"as_of": now, "owning_application": name}
        subscriptions = client.get("/subscriptions", params=wanted, headers=bearer(role)).json()["items"]
        assert len(event_types) == len(subscriptions) == (role in AUDITORS)


def test_refused_requests_are_listed(guarded):
    """Reference audit#refused-requests."""
    client, _ = guarded
    headers = {"User-Agent": "denied", "X-Flow-Id": "denied-1"}
    # Earlier denials are written now: there is room for new ones.
    assert client.get("/audit/denials", headers=bearer("auditor")).status_code == 200
    assert client.get("/audit?secret=1", headers=bearer("stranger") | headers).status_code == 403
    assert client.get("/storages", headers=bearer("no-such-token") | headers).status_code == 401
    items = client.get("/audit/denials?limit=1000", headers=bearer("auditor")).json()["items"]
    found = {(each["status"], each["method"], each["path"], each["actor"]) for each in items}
    assert {(403, "GET", "/audit", "stranger"), (401, "GET", "/storages", "")} <= found
    assert "secret" not in str(items)
    assert "no-such-token" not in str(items)
    first = client.get("/audit/denials?limit=1", headers=bearer("auditor")).json()
    assert first["items"][0] == items[0]
    second = client.get(first["_links"]["next"]["href"], headers=bearer("auditor")).json()
    assert second["items"][0] == items[1]


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.operation)
def test_streaming_a_subscription_requires_its_rights(guarded, case):
    """Reference subscriptions#rights, authorization#event-rights."""
    client, _ = guarded
    answers, details = {}, {}
    for role in ROLES:
        subscription = subscribe(client, f"{case.operation} {role}")
        method, path = case.operation.format(subscription_id=subscription).split()
        with client.stream(method, path, json=case.body, headers=bearer(role)) as answer:
            answers[role] = answer.status_code
            if answer.status_code == 403:
                answer.read()
                details[role] = answer.json()["detail"].replace(subscription, "{subscription}")
    assert answers == {role: case.status if role in case.allowed else 403 for role in ROLES}
    assert details["subscriber"] == READ
    assert details["analyst"] == details["stranger"] == VIA


def test_only_streams_of_clients_that_lose_the_right_to_read_end(guarded, name):
    """Reference authorization#changed-readers."""
    client, _ = guarded
    both = SECTION | {"readers": [attribute("reader"), attribute("stranger")]}
    definition = event_type_body(name=name, authorization=both)
    assert client.post("/event-types", json=definition, headers=bearer("admin")).status_code == 201
    path = f"/event-types/{name}/events?batch_flush_timeout=1&stream_limit=1"
    with (
        open_stream(client, path, headers=bearer("reader")) as stays,
        open_stream(client, path, headers=bearer("stranger")) as goes,
    ):
        changed = definition | {"authorization": SECTION}
        assert client.put(f"/event-types/{name}", json=changed, headers=bearer("admin")).status_code == 200
        assert f"Access on READ event-type:{name} denied" in goes.batches()[-1]["info"]["debug"]
        client.post(f"/event-types/{name}/events", json=[event()], headers=bearer("writer"))
        assert len(stays.events(1)) == 1


@pytest.mark.parametrize("case", CASES + STREAMS, ids=lambda case: case.operation)
def test_requests_without_a_token_or_without_the_scope_are_rejected(guarded, case):
    client, subscription = guarded
    assert ask(client, case, subscription, None).status_code == 401
    assert ask(client, case, subscription, "nobody-knows-it").status_code == 401
    assert ask(client, case, subscription, "no-scope").status_code == 403


@pytest.mark.parametrize("case", CASES + STREAMS, ids=lambda case: case.operation)
def test_the_scope_of_every_operation_in_mode_full(case):
    """Reference common#scopes."""
    assert scope_of(*case.operation.split()) == case.scope


def test_every_operation_has_a_row():
    public = {operation for operation in routed() if operation.split()[1] in PUBLIC}
    assert sorted(case.operation for case in CASES + STREAMS) == sorted(set(routed()) - public)
