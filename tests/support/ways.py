"""The ways to effects, as the reference lists them, and what refuses each: one request for each check.

Source: reference authorization#effects-and-ways.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from rioni.domain.system.system_events import DEAD_LETTER_QUEUE
from tests.support.builders import SCHEMA, event_type_body
from tests.support.dead_letters import KEEPING, dead_letter
from tests.support.in_process import HOST, Answer, InProcess, in_process
from tests.support.tokens import FULL_SCOPES, write_tokens
from tests.support.value_tables import rows_of


ET, COMPACTED, OWNED, OPEN, RECREATED = (
    f"ways.{name}" for name in ("orders", "compacted", "owned", "open", "recreated")
)
GONE = "application-of-what-is-gone"
SECRET = "what-only-owners-see"
AVRO = "application/avro-binary"
ROOT = "root"
"""The token of the default administrator."""
PRODUCER, CONSUMER = "PRODUCER", "CONSUMER"
SIDES = {"no": (), "producer": (PRODUCER,), "consumer": (CONSUMER,), "both": (PRODUCER, CONSUMER)}
UNKNOWN_ID = "038fc871-1d2c-4e2e-aa29-1579e8f2e71f"
REALM = "employees"
IMPLIED = {
    "broker READ": {"event type READ", "subscription READ", "broker HISTORY"},
    "broker WRITE": {"event type WRITE", "event type ADMIN"},
    "broker ADMIN": {"subscription ADMIN", "broker HISTORY"},
}
"""Further rights of users in the lists of the broker's administrators."""
RIGHTS = frozenset(
    (
        *(f"event type {right}" for right in ("READ", "WRITE", "ADMIN")),
        *(f"subscription {right}" for right in ("READ", "ADMIN")),
        *(f"broker {right}" for right in ("READ", "WRITE", "ADMIN", "HISTORY")),
    )
)
BODY_BYTES_MAX = 100_000
READ_ONLY = "disable_db_write_operations"


@dataclass(frozen=True)
class Way:
    """A row of the reference."""

    effect: str
    method: str
    path: str
    rights: frozenset[str]
    scope: str
    """Empty for a public way."""
    sides: tuple[str, ...]
    writes: bool

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def route(self) -> str:
        """The route that it is one of."""
        return str(self).partition("?")[0]

    def was_gone(self, method: str, path: str) -> bool:
        """Whether a request without a query was made on this way."""
        named = {"rest": ".+"}
        pattern = re.sub(r"\\\{(\w+)\\\}", lambda found: named.get(found[1], "[^/]+"), re.escape(self.path))
        return method == self.method and re.fullmatch(pattern, path) is not None


def _ways() -> Iterator[Way]:
    for effect, way, right, scope, blacklist, read_only in rows_of("authorization", "Effects and ways"):
        method, path = way.split()
        yield Way(
            effect=effect,
            method=method,
            path=path,
            rights=frozenset() if right == "everybody" else frozenset(right.split(", ")),
            scope="" if scope == "public" else scope,
            sides=SIDES[blacklist],
            writes={"refused": True, "works": False}[read_only],
        )


WAYS = tuple(_ways())


def without(right: str) -> frozenset[str]:
    """All rights but one, and those that include it."""
    return RIGHTS - {right} - {each for each, implied in IMPLIED.items() if right in implied}


def uid_of(rights: frozenset[str]) -> str:
    """The name of the user who has these rights."""
    return "+".join(sorted(right.replace(" ", ".") for right in rights)) or "without-rights"


PEOPLE = frozenset(
    (*(way.rights for way in WAYS), *(without(right) for way in WAYS for right in way.rights), RIGHTS, frozenset[str]())
)
"""The sets of rights that users have."""


def _tokens() -> Iterator[tuple[str, dict[str, Any]]]:
    yield ROOT, {"uid": "root", "realm": "services", "scopes": list(FULL_SCOPES)}
    for rights in PEOPLE:
        uid = uid_of(rights)
        yield f"{uid}/all", {"uid": uid, "realm": REALM, "scopes": list(FULL_SCOPES)}
        yield f"{uid}/namesake", {"uid": uid, "realm": "services", "scopes": list(FULL_SCOPES)}
        yield f"{uid}/stranger", {"uid": uid, "realm": "strangers", "scopes": list(FULL_SCOPES)}
        for scope in FULL_SCOPES:
            yield f"{uid}/only/{scope}", {"uid": uid, "realm": REALM, "scopes": [scope]}
            yield f"{uid}/not/{scope}", {"uid": uid, "realm": REALM, "scopes": [*({*FULL_SCOPES} - {scope})]}


def _who(*rights: str) -> list[dict[str, str]]:
    """Users who have one of these rights; sections and lists must not be empty."""
    found = [uid_of(each) for each in PEOPLE if each & {*rights}]
    return [{"data_type": "user", "value": uid} for uid in sorted(found)]


SECTION = {
    name: _who(f"event type {right}")
    for name, right in (("admins", "ADMIN"), ("readers", "READ"), ("writers", "WRITE"))
}
SUBSCRIPTION = {
    "owning_application": "ways",
    "event_types": [ET],
    "authorization": {"admins": _who("subscription ADMIN"), "readers": _who("subscription READ")},
}
DEFINITION = event_type_body(name=ET, authorization=SECTION)
ADMINS = {"admins": _who("broker ADMIN"), "readers": _who("broker READ"), "writers": _who("broker WRITE")}
EVENT = {
    "order_id": "1",
    "metadata": {"eid": "b5f3ce2c-6ad7-4b7a-9b0f-9d7c6e9b5b11", "occurred_at": "2026-11-20T10:00:00Z"},
}
SECRETS = [{"order_id": SECRET, "metadata": EVENT["metadata"] | {"partition_compaction_key": "1"}}]
OWNERS = {"features": ["event_owner_selector_authz"]}
CURSOR = {"partition": "0", "offset": "BEGIN"}
PLACE = {"partition": "0", "offset": "001-0001-000000000000000000"}
PAIR = {"initial_cursor": PLACE, "final_cursor": PLACE}
COMMIT = {"items": [{**PLACE, "event_type": ET, "cursor_token": "any"}]}
FAILURES = {"items": [{**PLACE, "event_type": ET, "reason": "any"}]}
STREAMED = "batch_limit=1&batch_flush_timeout=1&stream_timeout=2&commit_timeout=1"
TICKET = "ticket={ticket}"
EVENT_STREAM = "text/event-stream"
SCHEMA_BODY = {"type": "json_schema", "schema": SCHEMA}


@dataclass(frozen=True)
class Request:
    """The request on a way; names in braces stand for those of the world."""

    body: Any = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 200
    """The status of the answer to users who have the right."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names in the path that replace those of the world."""
    event_type: str = ET


_JOB = {"kind": "archive", "name": "ways", "state": "running"}
REQUESTS: Mapping[str, Request] = {
    "POST /event-types/{name}/events": Request([EVENT]),
    "POST /event-types/{name}/deleted-events": Request(
        [{}], status=422, names={"name": COMPACTED}, event_type=COMPACTED
    ),
    "POST /subscriptions/{subscription_id}/dead-letters/redrive": Request({}),
    "POST /subscriptions/{subscription_id}/dead-letters/redrive/preview": Request({}),
    "GET /event-types/{name}/events": Request(query=f"{STREAMED}&cursors={quote(json.dumps([CURSOR]))}"),
    "GET /subscriptions/{subscription_id}/events": Request(query=STREAMED),
    "GET /event-types/{name}/events?ticket": Request(query=f"{STREAMED}&{TICKET}"),
    "GET /subscriptions/{subscription_id}/events?ticket": Request(query=f"{STREAMED}&{TICKET}"),
    "POST /stream-tickets": Request({"path": f"/event-types/{ET}/events"}, status=201),
    "POST /subscriptions/{subscription_id}/events": Request({"batch_limit": 1, "stream_timeout": 2}),
    "POST /event-types/{name}/cursor-distances": Request([PAIR]),
    "POST /event-types/{name}/cursors-lag": Request([CURSOR]),
    "POST /event-types/{name}/shifted-cursors": Request([{**PLACE, "shift": 0}]),
    "POST /subscriptions/{subscription_id}/cursors": Request(
        COMMIT, headers={"X-Nakadi-StreamId": UNKNOWN_ID}, status=422
    ),
    "PATCH /subscriptions/{subscription_id}/cursors": Request({"items": []}, status=204),
    "DELETE /subscriptions/{subscription_id}/streams/{stream_id}": Request(status=404),
    "POST /subscriptions/{subscription_id}/streams/{stream_id}/failures": Request(FAILURES, status=422),
    "POST /event-types/{name}/schemas/{version}/compatibility-check": Request(SCHEMA_BODY),
    "POST /event-types": Request(DEFINITION, status=409),
    "PUT /event-types/{name}": Request(DEFINITION),
    "DELETE /event-types/{name}": Request(status=409),
    "POST /event-types/{name}/schemas": Request(SCHEMA_BODY),
    "POST /subscriptions": Request({"owning_application": "ways", "event_types": ["ways.unknown"]}, status=422),
    "PUT /subscriptions/{subscription_id}": Request(SUBSCRIPTION, status=204),
    "DELETE /subscriptions/{subscription_id}": Request(status=204, names={"subscription_id": "{spare}"}),
    "POST /event-types/{name}/timelines": Request({"storage_id": "unknown"}, status=422),
    "PUT /event-types/{name}/partition-count": Request({"partition_count": 0}, status=422),
    "POST /event-types/{name}/partition-count": Request({"partition_count": 0}, status=422),
    "POST /storages": Request({"id": "default", "storage_type": "embedded"}, status=409),
    "DELETE /storages/{storage_id}": Request(status=404, names={"storage_id": "unknown"}),
    "POST /settings/admins": Request(ADMINS),
    "PUT /settings/blacklist/{blacklist_type}/{name}": Request(status=204),
    "DELETE /settings/blacklist/{blacklist_type}/{name}": Request(status=204),
    "POST /settings/features": Request({"feature": "remote_tokeninfo", "enabled": False}, status=204),
    "POST /log/cosignatures": Request({"note": "none"}, status=400),
    "GET /log/proof/consistency": Request(query="first=1"),
    "GET /log/proof/inclusion": Request(query="position=1"),
    "GET /rebuilds/{rebuild_id}": Request(status=404),
    "POST /filter-evaluations": Request({"filter": "event.a == 1", "events": [{"a": 1}]}),
    "PUT /jobs/{job_id}": Request(_JOB, names={"job_id": "{new}"}),
    "GET /avro-schemas/{name}/versions": Request(names={"name": "batch.publishing"}),
    "GET /avro-schemas/{name}/versions/{version}": Request(names={"name": "batch.publishing", "version": "1"}),
    **{
        f"GET {path}?as_of": Request(query="as_of={gone_at}", names={"name": RECREATED, "subscription_id": "{gone}"})
        for path in (
            "/event-types",
            "/event-types/{name}",
            "/event-types/{name}/schemas",
            "/event-types/{name}/schemas/{version}",
            "/event-type-facets",
            "/subscriptions",
            "/subscriptions/{subscription_id}",
        )
    },
    **{
        f"GET {path}?as_of": Request(query="as_of={gone_at}")
        for path in (
            "/settings/admins",
            "/settings/blacklist",
            "/settings/features",
            "/storages",
            "/storages/{storage_id}",
            "/event-types/{name}/timelines",
        )
    },
}
"""Requests that are more than the path; one that is permitted leaves the world as it was."""


@dataclass(frozen=True)
class Refused:
    """A request that one check refuses, and no other."""

    what: str
    method: str
    target: str
    token: str | None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    hides: str = ""
    """The text that is left out of the answer, if that is how the request is refused."""
    ends: str = ""
    """The text with which the stream ends that is refused meanwhile."""
    statuses: tuple[int, ...] = (401, 403, 421)
    state: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Settings in effect during the request: `features` by their names, `blacklist` by kind and name."""
    meanwhile: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Settings like `state`, made once the stream has begun."""
    mode: str = "full"

    @property
    def is_read(self) -> bool:
        """Whether a stream is read for it, for a second or more."""
        return self.target.partition("?")[0].endswith("/events") and bool(self.hides or self.meanwhile)

    def __str__(self) -> str:
        return f"{self.what}: {self.method} {self.target}"


class World:
    """A broker in this process that has something of each kind."""

    def __init__(self, broker: InProcess, mode: str) -> None:
        self.broker, self.mode = broker, mode
        for body in (
            DEFINITION,
            DEFINITION
            | {
                "name": COMPACTED,
                "cleanup_policy": "compact",
                "partition_strategy": "hash",
                "partition_key_fields": ["order_id"],
            },
            DEFINITION
            | {
                "name": OWNED,
                "cleanup_policy": "compact",
                "partition_strategy": "hash",
                "partition_key_fields": ["order_id"],
                "event_owner_selector": {"type": "path", "name": "user", "value": "order_id"},
            },
            event_type_body(name=OPEN),
            event_type_body(
                name=RECREATED,
                owning_application=GONE,
                schema={"type": "json_schema", "schema": f'{{"title":"{GONE}"}}'},
            ),
        ):
            self._do("POST", "/event-types", body)
        gone = self._do("POST", "/subscriptions", {"owning_application": GONE, "event_types": [ET]}).json()["id"]
        gone_at = self.broker.ask("GET", "/audit?limit=1", token=self.root).headers["log-position"]
        self._do("DELETE", f"/subscriptions/{gone}")
        self._do("DELETE", f"/event-types/{RECREATED}")
        self._do("POST", "/event-types", event_type_body(name=RECREATED))
        self._do("POST", f"/event-types/{ET}/events", [EVENT])
        self._do("POST", "/settings/admins", ADMINS)
        subscription = self._do("POST", "/subscriptions", SUBSCRIPTION).json()["id"]
        of_owned = {**SUBSCRIPTION, "event_types": [OWNED], "read_from": "begin", "annotations": KEEPING}
        owned = self._do("POST", "/subscriptions", of_owned).json()["id"]
        queue = self.broker.ask("GET", f"/event-types/{DEAD_LETTER_QUEUE}", token=self.root).json()
        selector = {"type": "path", "name": "user", "value": "error.message"}
        self._do("PUT", f"/event-types/{DEAD_LETTER_QUEUE}", queue | {"event_owner_selector": selector})
        with self.switched(OWNERS):
            self._do("POST", f"/event-types/{OWNED}/events", SECRETS)
            letter = dead_letter(owned, OWNED, 0, SECRETS[0], SECRET)
            self._do("POST", f"/event-types/{DEAD_LETTER_QUEUE}/events", [letter])
        self.names = {
            "name": ET,
            "subscription_id": subscription,
            "stream_id": UNKNOWN_ID,
            "version": "latest",
            "partition": "0",
            "storage_id": "default",
            "blacklist_type": "CONSUMER_APP",
            "level": "0",
            "rest": "000.p/1",
            "rebuild_id": UNKNOWN_ID,
            "job_id": UNKNOWN_ID,
            "owned": owned,
            "gone": gone,
            "gone_at": gone_at,
        }

    @property
    def root(self) -> str | None:
        """The token of the default administrator, where tokens are asked for."""
        return None if self.mode == "off" else ROOT

    def spare(self) -> str:
        """The id of a subscription that may be deleted."""
        found: str = self._do("POST", "/subscriptions", {**SUBSCRIPTION, "consumer_group": "spare"}).json()["id"]
        return found

    def ticket(self, path: str) -> str:
        """A ticket for a stream, of the default administrator."""
        found: str = self._do("POST", "/stream-tickets", {"path": path}).json()["ticket"]
        return found

    def target(self, way: Way) -> str:
        """Path and query of a request on a way."""
        request = REQUESTS.get(str(way), Request())
        known = self.names | {"new": str(uuid4()), "spare": "{spare}"}
        names = self.names | {name: value.format(**known) for name, value in request.names.items()}
        query = request.query.replace("{gone_at}", self.names["gone_at"])
        return way.path.partition("?")[0].format(**names) + (f"?{query}" if query else "")

    def ask(self, way: Way, token: str | None) -> Answer:
        """Send the request of a way; of streams nothing is read."""
        request = REQUESTS.get(str(way), Request())
        pieces = 0 if way.path.partition("?")[0].endswith("/events") else None
        return self._send(way.method, self.target(way), request.body, token, request.headers, pieces=pieces)

    def _send(
        self, method: str, target: str, body: Any, token: str | None, headers: Mapping[str, str], **options: Any
    ) -> Answer:
        """Send a request whose target may need something that is new: a subscription to delete, or a ticket."""
        if "{spare}" in target:
            target = target.replace("{spare}", self.spare())
        if TICKET in target:
            path = target.partition("?")[0]
            issued = self.broker.ask("POST", "/stream-tickets", {"path": path}, token=token)
            if issued.status != HTTPStatus.CREATED:
                return issued
            token, headers = None, {**headers, "Accept": EVENT_STREAM}
            target = target.replace("{ticket}", issued.json()["ticket"])
        return self.broker.ask(method, target, body, token=token, headers=headers, **options)

    def refuses(self, case: Refused) -> bool:
        """Whether a request is refused that must be."""
        answer = self.answer(case)
        if case.hides:
            return case.hides not in answer.text
        return case.ends in answer.text if case.ends else answer.status in case.statuses

    def answer(self, case: Refused) -> Answer:
        """The answer to a request that must be refused."""
        with ExitStack() as stack:
            stack.enter_context(self.switched(case.state))
            meanwhile = partial(stack.enter_context, self.switched(case.meanwhile))
            return self._send(
                case.method,
                case.target,
                case.body,
                case.token,
                case.headers,
                pieces=0 if case.target.partition("?")[0].endswith("/events") and not case.is_read else None,
                begun=meanwhile if case.meanwhile else None,
            )

    @contextmanager
    def switched(self, state: Mapping[str, Sequence[str]]) -> Iterator[None]:
        with ExitStack() as stack:
            for each in state.get("blacklist", ()):
                stack.callback(self._do, "DELETE", f"/settings/blacklist/{each}")
                self._do("PUT", f"/settings/blacklist/{each}")
            for each in state.get("features", ()):
                stack.callback(self._do, "POST", "/settings/features", {"feature": each, "enabled": False})
                self._do("POST", "/settings/features", {"feature": each, "enabled": True})
            yield

    def _do(self, method: str, target: str, body: Any = None) -> Answer:
        answer = self.broker.ask(method, target, body, token=self.root)
        assert answer.status < 300, (method, target, answer)
        return answer


@contextmanager
def world(folder: Path, mode: str, **settings: Any) -> Iterator[World]:
    """A broker in this process in a mode of authentication."""
    write_tokens(folder / "tokens.toml", dict(_tokens()))
    guarded = {
        "auth_tokens": folder / "tokens.toml",
        "default_admin": "service:root",
        "auth_service_realms": "services",
        "audit_readers": ",".join(f"user:{each['value']}" for each in _who("broker HISTORY")),
    }
    if mode == "realm":
        guarded["auth_realms"] = f"{REALM},services"
    with in_process(
        folder / "data",
        auth_mode=mode,
        allowed_hosts=HOST,
        body_bytes_max=BODY_BYTES_MAX,
        **(guarded if mode != "off" else {}),
        **settings,
    ) as broker:
        yield World(broker, mode)
