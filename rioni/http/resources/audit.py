"""`/audit`: changes with their authors, times and clients, and refused requests (reference audit)."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self
from weakref import WeakSet

import falcon
import msgspec
import orjson

from rioni.domain.aggregates import AGGREGATES, TOPICS
from rioni.domain.audit_events import shown_state
from rioni.domain.errors import Malformed, NotAcceptable, TooManyStreams
from rioni.domain.events import client_parts, realm_of
from rioni.domain.json_patch import json_patch
from rioni.domain.texts import proposal
from rioni.http.answers import send_stream
from rioni.http.caller import Caller, caller_of, client_key
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.request_parsing import LOG_POSITION, check_history, integer, integer_within, link_to, time_from
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditQuery, PageStart


# --- Renders entries of the audit trail as JSON: what changed, as a patch, and if asked for both states ---


def rendered(rows: Iterable[Mapping[str, Any]], *, states: bool) -> list[bytes]:
    """The JSON of each entry.

    PERF: 30 µs for 1 kB of states, 5 ms for two of 256 kB: call it in a thread pool.

    Args:
        rows: the rows of the audit log, `before` and `after` as JSON text.
        states: whether to add both.
    """
    return [orjson.dumps(_item(row, states=states)) for row in rows]


def _item(row: Mapping[str, Any], *, states: bool) -> dict[str, Any]:
    kind = row["resource_type"]
    before, after = shown_state(kind, row["before"]), shown_state(kind, row["after"])
    address, user_agent = client_parts(row["client"])
    item = {
        "position": row["position"],
        "recorded_at": row["recorded_at"],
        "actor": row["actor"],
        "address": address,
        "user_agent": user_agent,
        "flow_id": row["flow_id"],
        "kind": row["topic"],
        "resource": f"{kind}:{row['resource']}",
        "changes": json_patch(before, after),
    }
    if realm := realm_of(row["client"]):
        item["realm"] = realm
    return item | {"before": before, "after": after} if states else item


# --- Streams the audit trail as JSON lines: page by page, so that memory and transactions stay small ---

NDJSON = "application/x-ndjson"
ENTRIES_PER_PAGE = 250
EXPORT_S = 3_600
"""How long an export may take; after that, its last line links to the rest."""


class AuditExport:
    """The body of an answer; it runs in the greenlet of its request.

    A client that stops reading blocks the server's write between two pages: no transaction is open and no thread is
    held then, and the server's deadline on its sockets ends it.
    """

    def __init__(
        self,
        dependencies: Dependencies,
        wanted: AuditQuery,
        place: PageStart,
        caller: Caller,
        client: str,
        href: Callable[[int], str],
        *,
        states: bool,
    ) -> None:
        """Start with nothing read.

        Args:
            dependencies: the dependencies of the process.
            wanted: the filters.
            place: the place at which to begin, and the order.
            caller: the caller, whose rights are checked again before each page.
            client: the key of the client that it counts for.
            href: returns the link to the entries after a position.
            states: whether to show both states of each entry.
        """
        self._dependencies, self._wanted, self._states = dependencies, wanted, states
        self._place: PageStart | None = place
        self._caller, self.client, self._href = caller, client, href
        self._started = False
        self._ends_at_s = dependencies.clock.monotonic() + EXPORT_S

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Read the next page that is not empty; the first item is empty, as of all streams."""
        if not self._started:
            self._started = True
            return b""
        while (place := self._place) is not None:
            # An export that is never waited for must let other greenlets run.
            time.sleep(0)
            if place.after is not None and self._must_end():
                self._place = None
                return orjson.dumps({"_links": {"next": {"href": self._href(place.after)}}}) + b"\n"
            page = self._dependencies.query(audit_log.page, self._wanted, place, ENTRIES_PER_PAGE)
            self._place = None if page.next is None else PageStart(place.ascending, after=page.next)
            if page.rows:
                lines = self._dependencies.compute_pool(rendered, page.rows, states=self._states)
                return b"\n".join((*lines, b""))
        raise StopIteration

    def close(self) -> None:
        """Read no further."""
        self._place = None

    def _must_end(self) -> bool:
        dependencies = self._dependencies
        return (
            dependencies.clock.monotonic() >= self._ends_at_s
            or dependencies.stopping.is_set()
            or self._caller.is_expired()
            or not dependencies.access.may(self._caller.subject, "HISTORY")
        )


PAGE_MAX = 1_000
PAGE_DEFAULT = 20
EXPORTS_MAX = 8
"""Exports at the same time in each worker process: each may hold states of 2 MB, and their rendered form.

As with bodies in flight, a client may have as many as leave the same number for others: one that does not read its
exports is not in the way of another one.
"""


class AuditResource(Resource):
    """The audit trail."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._exports: WeakSet[AuditExport] = WeakSet()

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """A page of the entries that match, or all of them as lines."""
        check_history(req, self._dependencies)
        wanted, place, limit = _query(req), _place(req), page_limit(req)
        states = req.get_param_as_bool("states") or False
        if _wants_lines(req):
            self._export(req, resp, wanted, place, states=states)
            return
        page = self._dependencies.query(audit_log.page, wanted, place, limit)
        items = self._dependencies.compute_pool(rendered, page.rows, states=states)
        places = {"prev": ("before", page.prev), "next": ("after", page.next)}
        links = {
            rel: {"href": link_to(req, "after", "before", **{name: position}, limit=limit)}
            for rel, (name, position) in places.items()
            if position is not None
        }
        resp.set_header(LOG_POSITION, str(page.head))
        resp.data = b'{"items":[%b],"_links":%b}' % (b",".join(items), orjson.dumps(links))

    def _export(
        self, req: falcon.Request, resp: falcon.Response, wanted: AuditQuery, place: PageStart, *, states: bool
    ) -> None:
        if place.before is not None:
            raise Malformed(f"before is for pages; {NDJSON} goes on from after")
        of_client = sum(each.client == client_key(req) for each in self._exports)
        if of_client >= EXPORTS_MAX - len(self._exports):
            raise TooManyStreams(
                f"This process is writing {len(self._exports)} exports of the audit trail, {of_client} of them yours; "
                "try again later"
            )
        stream = AuditExport(
            self._dependencies,
            wanted,
            place,
            caller_of(req),
            client_key(req),
            lambda after: link_to(req, "before", "limit", after=after),
            states=states,
        )
        self._exports.add(stream)
        resp.content_type = NDJSON
        send_stream(req, resp, stream)


class DenialsResource(Resource):
    """Requests that were refused."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """A page of records of them, newest first."""
        check_history(req, self._dependencies)
        limit = page_limit(req)
        before = None if req.get_param("after") is None else integer(req, "after", 0)
        found = self._dependencies.denied.newest(before, limit + 1)
        items = [msgspec.structs.asdict(denial) for _, denial in found[:limit]]
        links = (
            {"next": {"href": link_to(req, "before", after=found[limit - 1][0], limit=limit)}}
            if len(found) > limit
            else {}
        )
        resp.data = orjson.dumps({"items": items, "_links": links})


def page_limit(req: falcon.Request) -> int:
    """The number of items that a page may have.

    Raises:
        Malformed: it is no number, or out of range.
    """
    return integer_within(req, "limit", PAGE_DEFAULT, 1, PAGE_MAX)


def _query(req: falcon.Request) -> AuditQuery:
    resource, kind = req.get_param("resource"), req.get_param("kind")
    if kind is not None and kind not in TOPICS and kind not in AGGREGATES:
        otherwise = f": write one such as event-type.created, or one of {', '.join(AGGREGATES)}"
        near = proposal(kind, [*AGGREGATES, *TOPICS], otherwise)
        raise Malformed(f"kind: '{kind}' is neither a topic nor a kind of resources{near}")
    since, until = req.get_param("since"), req.get_param("until")
    actor, realm = req.get_param("actor"), req.get_param("realm")
    if realm is not None and actor is None:
        raise Malformed("realm: give the actor, too: its name and its realm together identify it")
    return AuditQuery(
        resource=None if resource is None else _resource(resource),
        kind=kind if kind in AGGREGATES else None,
        topic=kind if kind in TOPICS else None,
        actor=actor,
        realm=realm,
        flow_id=req.get_param("flow_id"),
        since=None if since is None else time_from(since, "since"),
        until=None if until is None else time_from(until, "until"),
    )


def _resource(text: str) -> tuple[str, str]:
    kind, colon, key = text.partition(":")
    if not colon or kind not in AGGREGATES:
        otherwise = f", with a kind of {', '.join(AGGREGATES)}"
        near = proposal(kind, AGGREGATES, otherwise) if colon else otherwise
        raise Malformed(f"resource: '{text}' is not written like event-type:order.created{near}")
    return kind, key


def _place(req: falcon.Request) -> PageStart:
    order = req.get_param("order") or "desc"
    if order not in ("asc", "desc"):
        raise Malformed(f"order: '{order}' is neither asc nor desc")
    after, before = (None if req.get_param(name) is None else integer(req, name, 0) for name in ("after", "before"))
    if after is not None and before is not None:
        raise Malformed("after and before exclude each other")
    return PageStart(order == "asc", after, before)


def _wants_lines(req: falcon.Request) -> bool:
    """Whether the client asks for JSON lines rather than for JSON.

    Raises:
        NotAcceptable: it accepts neither.
    """
    preferred = req.client_prefers((falcon.MEDIA_JSON, NDJSON))
    if preferred is None:
        raise NotAcceptable(
            f"Answers are application/json or {NDJSON}, which the Accept header '{req.accept}' excludes"
        )
    return preferred == NDJSON
