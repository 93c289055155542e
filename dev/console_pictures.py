"""Takes the pictures of the console that the documentation shows: `python -m dev.console_pictures FOLDER [NAME ...]`.

A broker is started, filled with the events of a small shop, and shown by a headless browser. The pictures are in
`docs/_static/console`.
"""

import base64
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from playwright.sync_api import Page, sync_playwright

from dev import shop
from tests.support.browser import PATH, PATIENCE_MS
from tests.support.metrics_history import server_without_samples, write_history
from tests.support.server import RunningServer, open_stream, running_server
from tests.support.tokens import ADMINISTRATOR, FULL_SCOPES, bearer, write_tokens


SIZE = {"width": 1280, "height": 800}
QUALITY = 60
"""The quality of WebP, in percent."""
HISTORY_S = 30
"""How old the metrics of a picture are at most."""


class Picture(NamedTuple):
    """The contents of a picture."""

    path: str
    """Below `/console`, with the names that `fill` returns in braces."""
    theme: Literal["light", "dark"] = "light"
    act: Callable[[Page], None] | None = None
    """The actions on the page before the picture is taken."""


def _plan(page: Page) -> None:
    area = page.locator("textarea[name=definition]")
    area.fill(json.dumps(json.loads(area.input_value()) | {"labels": {"team": "checkout"}}, indent=2))
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("heading", name="labels").wait_for()
    page.get_by_role("button", name="Apply").scroll_into_view_if_needed()


def _scroll_down(page: Page) -> None:
    page.locator("#ended tbody tr").last.scroll_into_view_if_needed()


def _preview(page: Page) -> None:
    page.get_by_role("button", name="Preview").click()
    page.locator(".preview, main table").first.wait_for()


def _why(page: Page) -> None:
    page.locator("tr.faded summary").first.click()


def _follow(page: Page) -> None:
    page.get_by_role("button", name="Live").click()
    page.get_by_text("Live: waiting").wait_for()
    events = page.url.replace("/console", "")
    page.request.post(events, data=[*shop.events(12)])
    page.get_by_text("Live: 12 events").wait_for()


def _log_in(page: Page) -> None:
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    page.wait_for_load_state("networkidle")


def _command(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("order.c")
    page.locator("#palette").get_by_text("order.created", exact=True).wait_for()


PICTURES: Mapping[str, Picture] = {
    # First, since a job that tells nothing for a while counts as interrupted.
    "jobs": Picture("/jobs"),
    "overview": Picture("/"),
    "overview-dark": Picture("/", "dark"),
    "event-types": Picture("/event-types"),
    "create-event-type": Picture("/create-event-type"),
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
    "live": Picture("/event-types/payment.received/events", act=_follow),
    "subscriptions": Picture("/subscriptions"),
    "subscription": Picture("/subscriptions/{subscription}"),
    "subscription-dark": Picture("/subscriptions/{subscription}", "dark"),
    "ended-streams": Picture("/subscriptions/{subscription}", act=_scroll_down),
    "reset": Picture("/subscriptions/{subscription}?tab=reset", act=_preview),
    "dead-letters": Picture("/subscriptions/{failing}?tab=dead+letters&preview=yes"),
    "definition": Picture("/subscriptions/{subscription}?tab=definition"),
    "audit": Picture("/audit"),
    "audit-entry": Picture("/audit/{position}"),
    "as-of": Picture("/event-types?as_of={position}", "dark"),
    "storages": Picture("/storages"),
    "settings": Picture("/settings"),
    "commands": Picture("/event-types", act=_command),
}
"""By name: each page, and most of their tabs; the braces are the names that `shop.fill` returns."""
GUARDED: Mapping[str, Picture] = {
    "login": Picture("/login"),
    "account": Picture("/account", act=_log_in),
    "empty": Picture("/subscriptions", act=_log_in),
    "rights": Picture("/event-types/order.created?tab=edit", act=_log_in),
}
"""Pictures of a broker that asks for tokens, and has one event type."""
NAMES = (*PICTURES, *GUARDED)

TOKEN = "some-token"  # noqa: S105 - of a broker that runs for the pictures alone
_END = """() => {
  const parts = [...document.querySelectorAll(".frame > main > *, .menu")];
  const ends = parts.map(each => each.getBoundingClientRect().bottom);
  return ends.length ? Math.min(innerHeight, Math.ceil(Math.max(...ends)) + 20) : innerHeight;
}"""


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
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.goto(f"{url}/console{picture.path}")
            page.wait_for_load_state("networkidle")
            if picture.act is not None:
                picture.act(page)
            (folder / f"{name}.webp").write_bytes(_photograph(page))
            context.close()

        with server_without_samples(Path(data) / "rioni") as broker:
            with broker.client() as api:
                filled = shop.fill(api)
            busiest = [f"{subject}.{fact}" for fact in shop.FACTS for subject in shop.OWNERS][:8]
            with _read(broker, filled["subscriptions"]):
                written_s = 0.0
                for name in filter(PICTURES.__contains__, names):
                    # PERF: writing takes longer than most pictures do; charts may end some seconds ago.
                    if time.time() >= written_s + HISTORY_S:
                        written_s = time.time()
                        metrics = Path(data) / "rioni/scratch/metrics"
                        write_history(metrics, int(1_000 * written_s), busiest, filled["subscriptions"])
                    picture = PICTURES[name]
                    show(name, broker.url, picture._replace(path=picture.path.format(**filled)))
        if not GUARDED.keys().isdisjoint(names):
            with _guarded(Path(data)) as broker:
                for name in filter(GUARDED.__contains__, names):
                    show(name, broker.url, GUARDED[name])
        browser.close()


@contextlib.contextmanager
def _read(broker: RunningServer, subscriptions: Sequence[str]) -> Iterator[None]:
    """Keep streams open that wait for more events than there are, so that nothing has to be committed."""
    waiting = {"batch_limit": 10_000, "max_uncommitted_events": 10_000, "batch_flush_timeout": 3_600}
    with contextlib.ExitStack() as streams:
        for subscription in subscriptions:
            api = streams.enter_context(broker.client())
            streams.enter_context(open_stream(api, f"/subscriptions/{subscription}/events", params=waiting))
        yield


def _photograph(page: Page) -> bytes:
    """The visible part of a page, down to where it ends, as WebP, which Playwright can't make by itself."""
    clip = {"x": 0, "y": page.evaluate("scrollY"), "width": SIZE["width"], "height": page.evaluate(_END), "scale": 1}
    session = page.context.new_cdp_session(page)
    shot = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY, "clip": clip})
    return base64.b64decode(shot["data"])


@contextlib.contextmanager
def _guarded(folder: Path) -> Iterator[RunningServer]:
    tokens = folder / "tokens.toml"
    users = {TOKEN: {"uid": "jane", "realm": "employees"}, "of-shop": {"uid": "shop", "realm": "services"}}
    write_tokens(tokens, {token: user | {"scopes": [*FULL_SCOPES]} for token, user in users.items()})
    settings = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "full",
        "RIONI_AUTH_TOKENS": str(tokens),
        "RIONI_AUTH_SERVICE_REALMS": "services",
    }
    with running_server(folder / "guarded", "--workers", "1", environment=settings) as broker:
        admin, jane = {"data_type": "service", "value": "shop"}, {"data_type": "user", "value": "jane"}
        section = {"admins": [admin], "writers": [admin], "readers": [admin, jane]}
        with broker.client(headers=bearer("of-shop")) as api:
            api.post("/event-types", json=shop.event_type("order.created", "shop") | {"authorization": section})
        yield broker


def main() -> None:
    """Take the named pictures, by default all."""
    folder, *names = sys.argv[1:]
    if PATH is None:
        raise SystemExit("The pictures are made by Chromium, which is not installed: apt-get install chromium")
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"There are no pictures {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    take(Path(folder), names or NAMES)


if __name__ == "__main__":
    main()
