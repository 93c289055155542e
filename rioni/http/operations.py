"""The requirements of operations for their callers, so that `/rights` predicts their answers.

Source: reference authorization#effects-and-ways, authorization#own-rights.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from rioni.commands.authorization import AccessPolicy, Rights
from rioni.domain.errors import Blocked
from rioni.http.caller import Caller
from rioni.http.middleware.authentication import scope_of


Outcome = Literal["allowed", "right", "scope", "blacklist", "read_only"]
"""Whether an operation is allowed; if not, the reason."""


class Needs(NamedTuple):
    """The requirements of an operation, besides the scope of its route."""

    of: Literal["broker", "event_type", "subscription"]
    right: str = ""
    """The right that is required; empty if everybody may do it."""
    sides: tuple[str, ...] = ()
    """The sides of the blacklist that forbid it."""
    writes: bool = False
    """Whether `disable_db_write_operations` refuses it."""


_CREATE = "CREATE"
"""A right that is not listed: all have it but auditors."""
_PRODUCER, _CONSUMER = "PRODUCER", "CONSUMER"
_EVENT_TYPE, _SUBSCRIPTION = "/event-types/{name}", "/subscriptions/{subscription_id}"
_CURSORS, _STREAM = f"{_SUBSCRIPTION}/cursors", f"{_SUBSCRIPTION}/events"
_REDRIVE = f"{_SUBSCRIPTION}/dead-letters/redrive"
_SCHEMAS, _AVRO_SCHEMAS = f"{_EVENT_TYPE}/schemas", "/avro-schemas/{name}/versions"
_STORAGE, _BLACKLIST = "/storages/{storage_id}", "/settings/blacklist/{blacklist_type}/{name}"

NEEDS: Mapping[str, Needs] = {
    # The first operation of each right decides whether the right is listed.
    f"GET {_EVENT_TYPE}/events": Needs("event_type", "READ", (_CONSUMER,)),
    f"GET {_EVENT_TYPE}/partitions": Needs("event_type", "READ"),
    f"GET {_EVENT_TYPE}/partitions/{{partition}}": Needs("event_type", "READ"),
    f"POST {_EVENT_TYPE}/cursor-distances": Needs("event_type", "READ"),
    f"POST {_EVENT_TYPE}/cursors-lag": Needs("event_type", "READ"),
    f"POST {_EVENT_TYPE}/shifted-cursors": Needs("event_type", "READ"),
    f"POST {_EVENT_TYPE}/events": Needs("event_type", "WRITE", (_PRODUCER,)),
    f"POST {_EVENT_TYPE}/deleted-events": Needs("event_type", "WRITE", (_PRODUCER,)),
    f"PUT {_EVENT_TYPE}": Needs("event_type", "ADMIN", writes=True),
    f"DELETE {_EVENT_TYPE}": Needs("event_type", "ADMIN", writes=True),
    f"POST {_SCHEMAS}": Needs("event_type", "ADMIN"),
    f"POST {_CURSORS}": Needs("subscription", "READ", (_CONSUMER,)),
    f"POST {_SUBSCRIPTION}/streams/{{stream_id}}/failures": Needs("subscription", "READ", (_CONSUMER,)),
    f"DELETE {_SUBSCRIPTION}/streams/{{stream_id}}": Needs("subscription", "READ"),
    f"GET {_STREAM}": Needs("subscription", "STREAM", (_CONSUMER,)),
    f"POST {_STREAM}": Needs("subscription", "STREAM", (_CONSUMER,)),
    f"PUT {_SUBSCRIPTION}": Needs("subscription", "ADMIN", writes=True),
    f"DELETE {_SUBSCRIPTION}": Needs("subscription", "ADMIN", writes=True),
    f"PATCH {_CURSORS}": Needs("subscription", "ADMIN", (_CONSUMER,)),
    f"POST {_REDRIVE}": Needs("subscription", "REDRIVE", (_PRODUCER, _CONSUMER), writes=True),
    f"POST {_REDRIVE}/preview": Needs("subscription", "REDRIVE", (_PRODUCER, _CONSUMER), writes=True),
    f"GET {_SUBSCRIPTION}/dead-letters": Needs("subscription", "REDRIVE", (_CONSUMER,)),
    "GET /settings/admins": Needs("broker", "READ"),
    "GET /settings/blacklist": Needs("broker", "READ"),
    "GET /settings/features": Needs("broker", "READ"),
    "GET /nodes": Needs("broker", "READ"),
    "GET /storages": Needs("broker", "READ"),
    f"GET {_STORAGE}": Needs("broker", "READ"),
    f"GET {_EVENT_TYPE}/timelines": Needs("broker", "READ"),
    "POST /settings/features": Needs("broker", "WRITE"),
    f"PUT {_BLACKLIST}": Needs("broker", "WRITE"),
    f"DELETE {_BLACKLIST}": Needs("broker", "WRITE"),
    "POST /storages": Needs("broker", "WRITE", writes=True),
    f"DELETE {_STORAGE}": Needs("broker", "WRITE", writes=True),
    "PUT /storages/default/{storage_id}": Needs("broker", "WRITE", writes=True),
    f"POST {_EVENT_TYPE}/timelines": Needs("broker", "WRITE", writes=True),
    f"PUT {_EVENT_TYPE}/partition-count": Needs("broker", "WRITE", writes=True),
    f"POST {_EVENT_TYPE}/partition-count": Needs("broker", "WRITE", writes=True),
    "POST /settings/admins": Needs("broker", "ADMIN", writes=True),
    "GET /audit": Needs("broker", "HISTORY"),
    "GET /audit/denials": Needs("broker", "HISTORY"),
    "GET /log/checkpoint": Needs("broker", "HISTORY"),
    "POST /log/cosignatures": Needs("broker", "HISTORY"),
    "GET /log/key": Needs("broker", "HISTORY"),
    "GET /log/keys": Needs("broker", "HISTORY"),
    "GET /log/proof/consistency": Needs("broker", "HISTORY"),
    "GET /log/proof/inclusion": Needs("broker", "HISTORY"),
    "GET /log/tile/{level}/{rest}": Needs("broker", "HISTORY"),
    "GET /jobs": Needs("broker", "HISTORY"),
    "GET /rebuilds": Needs("broker", "HISTORY"),
    "GET /rebuilds/{rebuild_id}": Needs("broker", "HISTORY"),
    f"GET {_EVENT_TYPE}": Needs("event_type"),
    f"GET {_EVENT_TYPE}/consumers": Needs("event_type"),
    f"GET {_EVENT_TYPE}/producers": Needs("event_type"),
    f"GET {_SCHEMAS}": Needs("event_type"),
    f"GET {_SCHEMAS}/{{version}}": Needs("event_type"),
    f"POST {_SCHEMAS}/{{version}}/compatibility-check": Needs("event_type"),
    f"GET {_SUBSCRIPTION}": Needs("subscription"),
    f"GET {_SUBSCRIPTION}/stats": Needs("subscription"),
    f"GET {_SUBSCRIPTION}/ended-streams": Needs("subscription"),
    f"GET {_CURSORS}": Needs("subscription", sides=(_CONSUMER,)),
    "POST /event-types": Needs("broker", _CREATE, writes=True),
    "POST /subscriptions": Needs("broker", writes=True),
    **dict.fromkeys(
        (
            "GET /event-types",
            "GET /event-type-facets",
            "GET /subscriptions",
            "POST /stream-tickets",
            "GET /rights",
            "POST /filter-evaluations",
            "PUT /jobs/{job_id}",
            f"GET {_AVRO_SCHEMAS}",
            f"GET {_AVRO_SCHEMAS}/{{version}}",
            "GET /registry/enrichment-strategies",
            "GET /registry/partition-strategies",
            "GET /metrics",
            "GET /metrics/history",
            "GET /version",
            "GET /health",
            "GET /livez",
            "GET /readyz",
            "GET /openapi.json",
            "GET /docs",
        ),
        Needs("broker"),
    ),
}
"""Methods and templates of all routes of the API with their requirements."""
_FIRST: Mapping[tuple[str, str], str] = {
    (needs.of, needs.right): operation for operation, needs in reversed([*NEEDS.items()])
}


class AllowedOperations(Rights, frozen=True, kw_only=True, omit_defaults=True):
    """The operations that a caller may do now."""

    operations: dict[str, Outcome]
    """The outcome of each operation on the broker, and on the named event type and subscription."""


def allowed_operations(
    access: AccessPolicy, caller: Caller, event_type: str | None, subscription_id: str | None
) -> AllowedOperations:
    """Find what the caller may do with the broker, an event type and a subscription; never blocks.

    Raises:
        EventTypeNotFound: there is no such event type.
        SubscriptionNotFound: there is no such subscription.
    """
    granted = access.rights(caller.subject, event_type, subscription_id)
    rights: dict[str, list[str] | None] = {
        "broker": granted.broker,
        "event_type": granted.event_type,
        "subscription": granted.subscription,
    }
    held: dict[str, set[str]] = {of: {"", *(names or ())} for of, names in rights.items()}
    if not access.is_auditor(caller.subject):
        held["broker"].add(_CREATE)
    # Resources that were not named get no answer, and no operation on the broker checks the blacklist.
    event_types: dict[str, Sequence[str]] = {
        "broker": (),
        "event_type": (event_type or "",),
        "subscription": access.event_types_of(subscription_id) if subscription_id is not None else (),
    }

    def outcome(operation: str, needs: Needs) -> Outcome:
        if not caller.has_scope(scope_of(*operation.split(" "))):
            return "scope"
        if needs.writes and access.is_read_only:
            return "read_only"
        try:
            for side in needs.sides:
                access.blacklist(side, caller.subject, event_types[needs.of])
        except Blocked:
            return "blacklist"
        return "allowed" if needs.right in held[needs.of] else "right"

    operations = {
        operation: outcome(operation, needs) for operation, needs in NEEDS.items() if rights[needs.of] is not None
    }
    listed = {
        of: names and [name for name in names if operations[_FIRST[of, name]] == "allowed"]
        for of, names in rights.items()
    }
    return AllowedOperations(**msgspec.structs.asdict(granted) | listed, operations=operations)
