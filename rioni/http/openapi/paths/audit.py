"""OpenAPI operations of the audit trail, and the additions to others for reads of the past."""

from typing import Any

from rioni.http.openapi.builders import (
    BOOLEAN,
    INTEGER,
    STRING,
    TIMESTAMP,
    Json,
    also,
    answer,
    array,
    one_of,
    operation,
    problem,
    query,
    reference,
    schema,
    structure,
)


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

_STATE: Json = {"type": ["object", "null"], "description": "Null where there was none."}
_CHANGE = structure(
    {"op": one_of("PatchOperation", ("add", "remove", "replace")), "path": STRING, "value": {}},
    optional=("value",),
    title="Change",
)
_ENTRY = structure(
    {
        "position": INTEGER | {"description": "In the log, from 1 without gaps."},
        "recorded_at": TIMESTAMP,
        "actor": STRING | {"description": "Who did it; `rioni` for the broker itself."},
        "realm": STRING | {"description": "In which the actor's name is unique; absent where there is none."},
        "address": STRING | {"description": "Where the request came from; empty for the broker itself."},
        "user_agent": STRING | {"description": "What the client calls itself; empty where it does not."},
        "flow_id": STRING,
        "kind": STRING | {"description": "What happened, such as `event-type.created`."},
        "resource": STRING | {"description": "To what, such as `event-type:order.created`."},
        "changes": array(_CHANGE, description="The JSON patch (RFC 6902) from the state before to the one after."),
        "before": _STATE,
        "after": _STATE,
    },
    optional=("realm", "before", "after"),
    title="AuditEntry",
)
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
_DENIAL = structure(
    {
        "first_at": TIMESTAMP,
        "last_at": TIMESTAMP,
        "status": one_of("DenialStatus", (401, 403)),
        "method": STRING,
        "path": STRING | {"description": "Without the query; empty where several are counted together."},
        "actor": STRING | {"description": "Empty where the client is not known."},
        "realm": STRING | {"description": "In which the actor's name is unique; empty where there is none."},
        "address": STRING,
        "user_agent": STRING,
        "flow_id": STRING | {"description": "Of the first of these requests."},
        "count": INTEGER | {"description": "How many such requests there were within some seconds."},
    },
    title="Denial",
)
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
                        structure({"items": array(_ENTRY), "_links": schema("Links")}, title="AuditPage"),
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
                    one_of("AuditOrder", ("asc", "desc")) | {"default": "desc"},
                    "asc",
                ),
                query("states", "Whether to show the states before and after.", BOOLEAN, example=True),
                query("after", "A position: the page goes on behind it.", INTEGER, 7),
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
                    structure({"items": array(_DENIAL), "_links": schema("Links")}, title="DenialPage"),
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
