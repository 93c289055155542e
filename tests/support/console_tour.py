"""Takes the pictures of the console's tour: `python -m tests.support.console_tour FOLDER` (docs/console.md shows them).

A broker is started, filled with the events of a small shop, and shown by a headless browser.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

from tests.support import dead_letters
from tests.support.browser import PATH
from tests.support.metrics_history import write_history
from tests.support.server import running_server


SIZE = {"width": 1280, "height": 800}
PAGES: Mapping[str, tuple[str, str]] = {
    "overview": ("/", "light"),
    "event-types": ("/event-types", "light"),
    "event-type": ("/event-types/order.created", "light"),
    "schema": ("/event-types/order.created?tab=schema&against=1.0.0", "dark"),
    "plan": ("/event-types/order.created?tab=edit", "light"),
    "events": ("/event-types/order.created/events", "dark"),
    "subscriptions": ("/subscriptions", "light"),
    "subscription": ("/subscriptions/{subscription}", "light"),
    "dead-letters": ("/subscriptions/{failing}?tab=dead+letters&preview=yes", "light"),
    "audit": ("/audit", "light"),
    "audit-entry": ("/audit/{position}", "light"),
    "storages": ("/storages", "light"),
    "settings": ("/settings", "light"),
}
"""Each picture: a page below `/console`, and the theme."""

_NUMBERS = count()
_OWNERS = {"order": "shop", "payment": "billing", "parcel": "warehouse", "customer": "accounts", "price": "pricing"}
_FACTS = ("created", "changed", "cancelled", "received")


def fill(api: httpx.Client) -> dict[str, Any]:
    """Let a shop use the broker; returns what the addresses of pages name."""
    for subject, owner in _OWNERS.items():
        for fact in _FACTS:
            api.post("/event-types", json=_event_type(f"{subject}.{fact}", owner)).raise_for_status()
    added = _schema({"order": "string", "total": "integer", "currency": "string", "coupon": "string"})
    api.post("/event-types/order.created/schemas", json=added).raise_for_status()
    for subject in _OWNERS:
        for _ in range(3):
            api.post(f"/event-types/{subject}.created/events", json=[*_events(40)]).raise_for_status()
    made = {}
    for application, names in {
        "warehouse": ["order.created"],
        "billing": ["order.created", "payment.received"],
    }.items():
        body = {"owning_application": application, "event_types": names, "read_from": "begin"}
        made[application] = api.post("/subscriptions", json=body).json()["id"]
    place = {"items": [{"event_type": "order.created", "offset": "BEGIN"}]}
    api.patch(f"/subscriptions/{made['warehouse']}/cursors", json=place).raise_for_status()
    made["carrier"] = _fail(api)
    entries = api.get("/audit", params={"kind": "event-type.schema-added"}).json()["items"]
    return {
        "subscription": made["warehouse"],
        "failing": made["carrier"],
        "position": entries[0]["position"],
        "subscriptions": [*made.values()],
    }


def _fail(api: httpx.Client) -> str:
    """Let a subscription have dead letters, of which one was published again; returns its id."""
    wanted = {
        "owning_application": "carrier",
        "event_types": ["parcel.created"],
        "annotations": dead_letters.KEEPING,
    }
    id_ = str(api.post("/subscriptions", json=wanted).json()["id"])
    events = [*_events(6)]
    reasons = ["The event was sent 3 times without being committed"] * 2 + [dead_letters.REASON] * 4
    letters = [
        dead_letters.dead_letter(id_, "parcel.created", 3 * position, event, reason)
        for position, (event, reason) in enumerate(zip(events, reasons, strict=True))
    ]
    dead_letters.write(api, letters)
    api.post(f"/subscriptions/{id_}/dead-letters/redrive", json={"limit": 1}).raise_for_status()
    return id_


def _event_type(name: str, owner: str) -> dict[str, Any]:
    statistic = dict.fromkeys(("messages_per_minute", "message_size"), 100)
    return {
        "name": name,
        "owning_application": owner,
        "category": "business",
        "enrichment_strategies": ["metadata_enrichment"],
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


def _events(number: int) -> Iterator[dict[str, Any]]:
    for n in (next(_NUMBERS) for _ in range(number)):
        metadata = {"eid": f"0d1b6f0e-3c52-4d8c-9b50-{n:012d}", "occurred_at": "2026-11-20T10:00:00Z"}
        yield {"order": f"ES-{4711 + n}", "total": 1990 + 7 * n, "currency": "EUR", "metadata": metadata}


def take(folder: Path) -> None:
    """Take all pictures; blocks for some seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        running_server(Path(data) / "rioni", "--workers", "1") as broker,
        sync_playwright() as playwright,
    ):
        with broker.client() as api:
            names = fill(api)
        busiest = [f"{subject}.{fact}" for fact in _FACTS for subject in _OWNERS][:8]
        metrics = Path(data) / "rioni/scratch/metrics"
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for name, (path, theme) in PAGES.items():
            context = browser.new_context(viewport=SIZE, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            write_history(metrics, int(1_000 * time.time()), busiest, names["subscriptions"])
            page.goto(f"{broker.url}/console{path.format(**names)}")
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}.png")
            context.close()
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
