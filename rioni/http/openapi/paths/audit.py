"""OpenAPI operations of the audit trail, and the additions to others for reads of the past."""

from typing import Any

from rioni.http.openapi.builders import (
    BOOLEAN,
    INTEGER,
    TIMESTAMP,
    Json,
    also,
    answer,
    literal,
    operation,
    paged,
    problem,
    query,
    reference,
)
from rioni.wire import audit


AUDIT = "Audit"
NDJSON = "application/x-ndjson"

HISTORICAL = frozenset(
    (
        "/event-type-facets",
        "/event-types",
        "/event-types/{name}",
        "/event-types/{name}/schemas",
        "/event-types/{name}/schemas/{version}",
        "/event-types/{name}/timelines",
        "/subscriptions",
        "/subscriptions/{subscription_id}",
        "/settings/admins",
        "/settings/blacklist",
        "/settings/features",
        "/storages",
        "/storages/{storage_id}",
    )
)
"""The paths that can be read as they were in the past."""

_EXAMPLE: dict[str, Any] = {
    "position": 7,
    "recorded_at": "2026-11-20T10:00:00.000Z",
    "actor": "jane",
    "address": "192.0.2.7",
    "user_agent": "curl/8.5.0",
    "flow_id": "checkout-4711",
    "kind": "settings.feature-switched",
    "resource": "settings:settings",
    "changes": [{"op": "add", "path": "/features/0", "value": "kpi_collection"}],
}
_DENIAL_EXAMPLE = {
    "first_at": "2026-11-20T10:00:00.000Z",
    "last_at": "2026-11-20T10:00:04.000Z",
    "status": 403,
    "method": "GET",
    "path": "/settings/admins",
    "actor": "jane",
    "realm": "employees",
    "address": "192.0.2.7",
    "user_agent": "curl/8.5.0",
    "flow_id": "checkout-4711",
    "count": 3,
}
_LIMIT = query("limit", "How many items a page has.", INTEGER | {"minimum": 1, "maximum": 1000, "default": 20}, 20)

PATHS: Json = {
    "/audit": {
        "get": operation(
            AUDIT,
            "List changes",
            {
                200: also(
                    answer(
                        "A page of the entries that match; with `Accept: application/x-ndjson` all of them, one a "
                        "line.",
                        paged("AuditPage", audit.AuditEntry),
                        {"items": [_EXAMPLE], "_links": {"next": {"href": "/audit?after=7&limit=20"}}},
                        headers=("Log-Position",),
                    ),
                    NDJSON,
                )
            },
            description="Every change of the broker's own state: who made it, when, from where, and what it was. For "
            "administrators and readers of the broker, and those whom the setting `audit_readers` names.\n\nA page may "
            "have fewer items than `limit`, or none, and a link to the next one.",
            parameters=[
                query("resource", "Only changes of this resource.", example="event-type:order.created"),
                query(
                    "kind", "Only changes of this kind: a topic or a kind of resource.", example="event-type.created"
                ),
                query("actor", "Only what subjects of this name did.", example="jane"),
                query("realm", "Only what the actor of this realm did.", example="employees"),
                query("flow_id", "Only what came of requests with this `X-Flow-Id`.", example="checkout-4711"),
                query("since", "The first time, included.", TIMESTAMP, "2026-01-01T00:00:00Z"),
                query("until", "The end, not included.", TIMESTAMP, "2027-01-01T00:00:00Z"),
                query(
                    "order",
                    "Newest or oldest first.",
                    literal("AuditOrder") | {"default": "desc"},
                    "asc",
                ),
                query("states", "Whether to show the states before and after.", BOOLEAN, example=True),
                query("after", "A position: the page continues after it.", INTEGER, 7),
                query("before", "A position: the page ends before it.", INTEGER),
                _LIMIT,
            ],
            problems={403: "", 429: "Too many exports at the same time."},
        )
    },
    "/audit/denials": {
        "get": operation(
            AUDIT,
            "List refused requests",
            {
                200: answer(
                    "A page of records, newest first; the newest 10,000 are kept.",
                    paged("DenialPage", audit.Denial),
                    {"items": [_DENIAL_EXAMPLE], "_links": {}},
                )
            },
            description="Requests without a valid token, and those whose client lacked a right. Rights as for the list "
            "of changes.",
            parameters=[query("after", "Where the page goes on, from a link.", INTEGER, 7), _LIMIT],
            problems={403: ""},
        )
    },
}


def in_the_past(described: Json) -> Json:
    """An operation that can also show the state at a past moment."""
    moment = query(
        "as_of",
        "Show what was: a position of the log, or an RFC 3339 time, which means the last entry recorded until then.",
    )
    responses = dict(described["responses"])
    found = responses[200]
    responses[200] = found | {"headers": found["headers"] | {"Log-Position": reference("headers", "Log-Position")}}
    responses.setdefault(422, problem(422))
    return described | {"parameters": [*described["parameters"], moment], "responses": responses}
