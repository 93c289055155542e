"""Lets a small shop use a broker: event types, events, subscriptions, dead letters and jobs, for pictures."""

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import httpx

from tests.support import dead_letters


OWNERS = {"order": "shop", "payment": "billing", "parcel": "warehouse", "customer": "accounts", "price": "pricing"}
FACTS = ("created", "changed", "cancelled", "received")
_NUMBERS = count()
_LAKE = {"kind": "archive", "name": "s3://shop-lake/events"}
_JOBS = (
    _LAKE | {"state": "done", "phase": "price.created", "done": 96_300, "total": 96_300, "detail": "96,300 events"},
    _LAKE | {"state": "running", "phase": "order.created", "done": 41_000, "total": 58_200},
)


def fill(api: httpx.Client) -> dict[str, Any]:
    """Let a shop use the broker; returns what the addresses of pages name."""
    for subject, owner in OWNERS.items():
        for fact in FACTS:
            api.post("/event-types", json=event_type(f"{subject}.{fact}", owner)).raise_for_status()
    added = _schema({"order": "string", "total": "integer", "currency": "string", "coupon": "string"})
    api.post("/event-types/order.created/schemas", json=added).raise_for_status()
    # Prices have no metadata, which these events have.
    published = [subject for subject in OWNERS if subject != "price"]
    for subject in (*published, *published):
        api.post(f"/event-types/{subject}.created/events", json=[*events(40)]).raise_for_status()
    made = {}
    for application, (offset, names) in {
        "warehouse": ("BEGIN", ["order.created"]),
        "billing": ("END", ["order.created", "payment.received"]),
    }.items():
        body = {"owning_application": application, "event_types": names, "read_from": "begin"}
        made[application] = api.post("/subscriptions", json=body).json()["id"]
        places = {"items": [{"event_type": name, "offset": offset} for name in names]}
        api.patch(f"/subscriptions/{made[application]}/cursors", json=places).raise_for_status()
    made["carrier"] = _fail(api)
    _end_streams(api, f"/subscriptions/{made['warehouse']}")
    api.post("/event-types/order.created/events", json=[*events(40)]).raise_for_status()
    api.post("/event-types/order.created/timelines", json={"storage_id": "default"}).raise_for_status()
    newest = [*events(40)]
    api.post("/event-types/order.created/events", json=newest).raise_for_status()
    for number, job in enumerate(_JOBS):
        api.put(f"/jobs/{uuid5(NAMESPACE_URL, str(number))}", json=job).raise_for_status()
    entries = api.get("/audit", params={"kind": "event-type.schema-added"}).json()["items"]
    return {
        "total": newest[-4]["total"],
        "subscription": made["warehouse"],
        "failing": made["carrier"],
        "position": entries[0]["position"],
        "subscriptions": [made["warehouse"], made["billing"]],
    }


def _fail(api: httpx.Client) -> str:
    """Let a subscription have dead letters, of which one was published again; returns its id."""
    wanted = {
        "owning_application": "carrier",
        "event_types": ["parcel.created"],
        "annotations": dead_letters.KEEPING,
    }
    id_ = str(api.post("/subscriptions", json=wanted).json()["id"])
    failed = [*events(6)]
    reasons = ["The event was sent 3 times without being committed"] * 2 + [dead_letters.REASON] * 4
    letters = [
        dead_letters.dead_letter(id_, "parcel.created", 3 * position, event, reason)
        for position, (event, reason) in enumerate(zip(failed, reasons, strict=True))
    ]
    dead_letters.write(api, letters)
    api.post(f"/subscriptions/{id_}/dead-letters/redrive", json={"limit": 1}).raise_for_status()
    return id_


def _end_streams(api: httpx.Client, path: str) -> None:
    """Let streams end: one that is closed, and two that do not commit."""
    with api.stream("GET", f"{path}/events", params={"batch_flush_timeout": 3_600}) as stream:
        api.delete(f"{path}/streams/{stream.headers['X-Nakadi-StreamId']}").raise_for_status()
        stream.read()
    for _ in range(2):
        api.get(f"{path}/events", params={"commit_timeout": 1}).raise_for_status()


def event_type(name: str, owner: str) -> dict[str, Any]:
    """The definition of an event type of the shop."""
    statistic = dict.fromkeys(("messages_per_minute", "message_size"), 100)
    return {
        "name": name,
        "owning_application": owner,
        "category": "undefined" if owner == "pricing" else "business",
        "enrichment_strategies": [] if owner == "pricing" else ["metadata_enrichment"],
        "partition_strategy": "hash",
        "partition_key_fields": ["order"],
        "schema": _schema({"order": "string", "total": "integer", "currency": "string"}),
        "default_statistic": statistic | {"read_parallelism": 4, "write_parallelism": 4},
        "labels": {"team": owner},
        "compatibility_mode": "compatible",
    }


def _schema(members: Mapping[str, str]) -> dict[str, str]:
    properties = {name: {"type": kind} for name, kind in members.items()}
    schema = {"type": "object", "properties": properties, "required": ["order"]}
    return {"type": "json_schema", "schema": json.dumps(schema)}


def events(number: int) -> Iterator[dict[str, Any]]:
    """Events of the shop, each of which comes once."""
    for n in (next(_NUMBERS) for _ in range(number)):
        metadata = {"eid": f"0d1b6f0e-3c52-4d8c-9b50-{n:012d}", "occurred_at": "2026-11-20T10:00:00Z"}
        yield {"order": f"ES-{4711 + n}", "total": 1990 + 7 * n, "currency": "EUR", "metadata": metadata}
