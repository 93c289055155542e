"""OpenAPI operations of the audit trail and the transparency log, and the additions to others for reads of the past."""

from typing import Any

from rioni.http.openapi.builders import (
    BOOLEAN,
    INTEGER,
    STRING,
    TIMESTAMP,
    Json,
    also,
    answer,
    body,
    literal,
    of,
    operation,
    paged,
    problem,
    query,
    reference,
)
from rioni.wire import audit


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

_AUDIT: Json = {
    "GET /audit": operation(
        "List changes",
        also(
            answer(
                "A page of the entries that match; with `Accept: application/x-ndjson` all of them, one a line.",
                paged("AuditPage", audit.AuditEntry),
                {"items": [_EXAMPLE], "_links": {"next": {"href": "/audit?after=7&limit=20"}}},
                headers=("Log-Position",),
            ),
            NDJSON,
        ),
        description="Every change of the broker's own state: who made it, when, from where, and what it was. For "
        "administrators and readers of the broker, and those whom the setting `audit_readers` names.\n\nA page may "
        "have fewer items than `limit`, or none, and a link to the next one.",
        parameters=[
            query("resource", "Only changes of this resource.", example="event-type:order.created"),
            query("kind", "Only changes of this kind: a topic or a kind of resource.", example="event-type.created"),
            query("actor", "Only what subjects of this name did.", example="jane"),
            query("realm", "Only what the actor of this realm did.", example="employees"),
            query("flow_id", "Only what came of requests with this `X-Flow-Id`.", example="checkout-4711"),
            query("since", "The first time, included.", TIMESTAMP, "2026-01-01T00:00:00Z"),
            query("until", "The end, not included.", TIMESTAMP, "2027-01-01T00:00:00Z"),
            query("order", "Newest or oldest first.", literal("AuditOrder") | {"default": "desc"}, "asc"),
            query("states", "Whether to show the states before and after.", BOOLEAN, example=True),
            query("after", "A position: the page continues after it.", INTEGER, 7),
            query("before", "A position: the page ends before it.", INTEGER),
            _LIMIT,
        ],
        problems={429: "Too many exports at the same time."},
    ),
    "GET /audit/denials": operation(
        "List refused requests",
        answer(
            "A page of records, newest first; the newest 10,000 are kept.",
            paged("DenialPage", audit.Denial),
            {"items": [_DENIAL_EXAMPLE], "_links": {}},
        ),
        description="Requests without a valid token, and those whose client lacked a right. Rights as for the list "
        "of changes.",
        parameters=[query("after", "Where the page goes on, from a link.", INTEGER, 7), _LIMIT],
    ),
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


# --- The transparency log: checkpoints, tiles and proofs ---

TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"
_ROOT = "bTQ6yYRc9DcGmzYqbM0rWJb4vxkVQZP5Wv1gJbcT0dE="
_LOG_NAME = "rioni/0d9a5e1c-33a1-4b6b-8d6f-9e4f4c0f2a11"
_VERIFIER = f"{_LOG_NAME}+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiB"
_NOTE = f"{_LOG_NAME}\n7\n{_ROOT}\n\n— {_LOG_NAME} x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZI=\n"
_READERS = "For administrators and readers of the broker, and those whom the setting `audit_readers` names."
_BUILDING = "The tree over the log is not built yet."

_LOG: Json = {
    "GET /log/checkpoint": operation(
        "Get a checkpoint",
        answer("A signed note (C2SP).", STRING, _NOTE, media=TEXT),
        description="Size and root of the Merkle tree over the log, signed, with the cosignatures of the witnesses "
        f"that have seen exactly this state. {_READERS}",
        parameters=[
            query(
                "cosigned", "Whether to get the newest checkpoint that a witness has cosigned.", BOOLEAN, example=True
            )
        ],
        problems={404: "No witness has cosigned a checkpoint yet.", 503: _BUILDING},
    ),
    "POST /log/cosignatures": operation(
        "Cosign a checkpoint",
        answer("How many cosignatures were accepted.", audit.AcceptedCosignatures, {"cosignatures": 1}),
        description="Adds cosignatures of witnesses that the setting `log_witnesses` names; of each the newest one "
        f"is kept. {_READERS}",
        body=body(of(audit.SignedNote), {"note": _NOTE}),
        problems={
            409: "This is not a checkpoint of this log.",
            422: "No known witness has cosigned it.",
            503: _BUILDING,
        },
    ),
    "GET /log/key": operation(
        "Get the verifier key",
        answer(
            "A verifier key of signed notes.", STRING, f"{_LOG_NAME}+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiB\n", media=TEXT
        ),
        description=f"The public key of checkpoints: name, id and key. The log has all keys there were. {_READERS}",
    ),
    "GET /log/keys": operation(
        "List the verifier keys",
        answer(
            "The keys in their order; the last one signs.",
            audit.VerifierKeys,
            {"keys": [{"verifier": _VERIFIER, "signature": ""}]},
        ),
        description="Every key that checkpoints of this log were signed with, and with which the one before has "
        f"signed it. {_READERS}",
    ),
    "GET /log/proof/consistency": operation(
        "Prove consistency",
        answer(
            "The proof.",
            audit.ConsistencyProof,
            {"first": 3, "second": 7, "hashes": [_ROOT]},
            headers=("Log-Position",),
        ),
        description=f"Proves that the log with `second` entries begins with that with `first` entries. {_READERS}",
        parameters=[
            query("first", "The size of the smaller tree.", INTEGER, 3),
            query("second", "The size of the larger one; by default that of the whole log.", INTEGER, 7),
        ],
        problems={422: "The sizes are not those of two trees.", 503: _BUILDING},
    ),
    "GET /log/proof/inclusion": operation(
        "Prove inclusion",
        answer(
            "The proof.", audit.InclusionProof, {"position": 3, "size": 7, "hashes": [_ROOT]}, headers=("Log-Position",)
        ),
        description=f"Proves that the log with `size` entries has a certain entry at a position. {_READERS}",
        parameters=[
            query("position", "The position of the entry, from 1.", INTEGER, 3),
            query("size", "The size of the tree; by default that of the whole log.", INTEGER, 7),
        ],
        problems={422: "There is no such entry.", 503: _BUILDING},
    ),
    "GET /log/tile/{level}/{rest}": operation(
        "Get a tile",
        answer("Hashes of 32 bytes, or entries, each after its length.", STRING | {"format": "binary"}, media=BINARY),
        description="A tile of the Merkle tree, or a bundle of its entries, as C2SP tlog-tiles describes it. "
        f"{_READERS}",
        problems={404: "The log is not that long.", 503: _BUILDING},
    ),
}

OPERATIONS: Json = {"Audit": _AUDIT, "Transparency log": _LOG}
