"""Takes the pictures of the console's tour: `python -m tests.support.console_tour FOLDER [NAME ...]`.

The documentation shows them: `tox run -e docs` makes all of them, those in the README are made with
`python -m tests.support.console_tour docs/_static/readme overview events`. A broker is started, filled with the events
of a small shop, and shown by a headless browser.
"""

import base64
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple
from uuid import NAMESPACE_URL, uuid5

import httpx
from playwright.sync_api import Page, sync_playwright

from tests.support import dead_letters
from tests.support.browser import PATH
from tests.support.metrics_history import write_history
from tests.support.server import RunningServer, running_server
from tests.support.tokens import ADMINISTRATOR, write_tokens


SIZE = {"width": 1280, "height": 800}
QUALITY = 45
"""Of WebP, in percent."""


class Picture(NamedTuple):
    """What a picture shows."""

    path: str
    """Below `/console`, with the names that `fill` returns in braces."""
    theme: Literal["light", "dark"] = "light"
    act: Callable[[Page], None] | None = None
    """What is done on the page first."""


def _plan(page: Page) -> None:
    area = page.locator("textarea[name=definition]")
    area.fill(json.dumps(json.loads(area.input_value()) | {"labels": {"team": "checkout"}}, indent=2))
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("heading", name="labels").wait_for()
    page.get_by_role("button", name="Apply").scroll_into_view_if_needed()


def _preview(page: Page) -> None:
    page.get_by_role("button", name="Preview").click()
    page.locator(".preview, main table").first.wait_for()


def _why(page: Page) -> None:
    page.locator("tr.faded summary").first.click()


def _command(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("sub")


PICTURES: Mapping[str, Picture] = {
    # First, since a job that tells nothing for a while counts as interrupted.
    "jobs": Picture("/jobs"),
    "overview": Picture("/"),
    "overview-dark": Picture("/", "dark"),
    "event-types": Picture("/event-types"),
    "event-type": Picture("/event-types/order.created"),
    "schema": Picture("/event-types/order.created?tab=schema&against=1.0.0", "dark"),
    "partitions": Picture("/event-types/order.created?tab=partitions"),
    "timelines": Picture("/event-types/order.created?tab=timelines"),
    "usage": Picture("/event-types/order.created?tab=usage", "dark"),
    "plan": Picture("/event-types/order.created?tab=edit", act=_plan),
    "events": Picture("/event-types/order.created/events", "dark"),
    "filter": Picture(
        "/event-types/order.created/events?filter=event.total+%3E+{total}+%26%26+event.currency+%3D%3D+'EUR'", act=_why
    ),
    "subscriptions": Picture("/subscriptions"),
    "subscription": Picture("/subscriptions/{subscription}"),
    "subscription-dark": Picture("/subscriptions/{subscription}", "dark"),
    "reset": Picture("/subscriptions/{subscription}?tab=reset", act=_preview),
    "dead-letters": Picture("/subscriptions/{failing}?tab=dead+letters&preview=yes"),
    "definition": Picture("/subscriptions/{subscription}?tab=definition"),
    "audit": Picture("/audit"),
    "audit-entry": Picture("/audit/{position}"),
    "as-of": Picture("/event-types?as_of={position}", "dark"),
    "storages": Picture("/storages"),
    "settings": Picture("/settings"),
    "account": Picture("/account"),
    "commands": Picture("/event-types", act=_command),
}
"""By name: each page, and most of their tabs."""
LOGIN = "login"
"""One more, of a broker that asks for tokens."""
NAMES = (*PICTURES, LOGIN)

_NUMBERS = count()
_OWNERS = {"order": "shop", "payment": "billing", "parcel": "warehouse", "customer": "accounts", "price": "pricing"}
_LAKE = {"kind": "archive", "name": "s3://shop-lake/events"}
_JOBS = (
    _LAKE | {"state": "done", "phase": "price.created", "done": 96_300, "total": 96_300, "detail": "96,300 events"},
    _LAKE | {"state": "running", "phase": "order.created", "done": 41_000, "total": 58_200},
)
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
    api.post("/event-types/order.created/timelines", json={"storage_id": "default"}).raise_for_status()
    newest = [*_events(40)]
    api.post("/event-types/order.created/events", json=newest).raise_for_status()
    for number, job in enumerate(_JOBS):
        api.put(f"/jobs/{uuid5(NAMESPACE_URL, str(number))}", json=job).raise_for_status()
    entries = api.get("/audit", params={"kind": "event-type.schema-added"}).json()["items"]
    return {
        "total": newest[-4]["total"],
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


def take(folder: Path, names: Collection[str] = NAMES) -> None:
    """Take pictures; blocks for up to a minute.

    Args:
        folder: where they are written, as `NAME.webp`.
        names: some of `NAMES`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox", "--disable-dev-shm-usage"])

        def show(name: str, url: str, picture: Picture) -> None:
            context = browser.new_context(
                viewport=SIZE,  # type: ignore[arg-type]
                color_scheme=picture.theme,
                reduced_motion="reduce",
                timezone_id="Europe/Berlin",
            )
            page = context.new_page()
            page.goto(f"{url}/console{picture.path}")
            page.wait_for_load_state("networkidle")
            if picture.act is not None:
                picture.act(page)
            (folder / f"{name}.webp").write_bytes(_photograph(page))
            context.close()

        with running_server(Path(data) / "rioni", "--workers", "1") as broker:
            with broker.client() as api:
                filled = fill(api)
            busiest = [f"{subject}.{fact}" for fact in _FACTS for subject in _OWNERS][:8]
            for name in filter(PICTURES.__contains__, names):
                with _stopped(broker):
                    now_ms = int(1_000 * time.time())
                    write_history(Path(data) / "rioni/scratch/metrics", now_ms, busiest, filled["subscriptions"])
                picture = PICTURES[name]
                show(name, broker.url, picture._replace(path=picture.path.format(**filled)))
        if LOGIN in names:
            with _guarded(Path(data)) as broker:
                show(LOGIN, broker.url, Picture("/login"))
        browser.close()


@contextlib.contextmanager
def _stopped(broker: RunningServer) -> Iterator[None]:
    """Let the workers, which write the history as well, do nothing within the block."""
    workers = broker.workers()
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGCONT)


def _photograph(page: Page) -> bytes:
    """The visible part of a page as WebP, which Playwright can't make by itself."""
    session = page.context.new_cdp_session(page)
    shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(shot["data"])


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[RunningServer]:
    tokens = folder / "tokens.toml"
    write_tokens(tokens, {"some-token": {"uid": "jane"}})
    settings = {**ADMINISTRATOR, "RIONI_AUTH_MODE": "full", "RIONI_AUTH_TOKENS": str(tokens)}
    with running_server(folder / "guarded", "--workers", "1", environment=settings) as broker:
        yield broker


def main() -> None:
    """Take the pictures that the command line names."""
    folder, *names = sys.argv[1:]
    if PATH is None:
        raise SystemExit("The pictures are made by Chromium, which is not installed: apt-get install chromium")
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"There are no pictures {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    take(Path(folder), names or NAMES)


if __name__ == "__main__":
    main()
