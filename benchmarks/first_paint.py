"""When a browser paints pages of the console first, with many event types: `python -m benchmarks.first_paint`.

A server of two workers has event types of many owners and labels. Chromium opens each page some times in a window that
is open and idle: with an empty cache, and again with the files of the first time. Times are from the beginning of the
navigation on, in ms; browser and server share the machine, so an answer without any page is shown beside, below which
the browser does not get there.
"""

import argparse
import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor

from playwright.sync_api import BrowserContext, sync_playwright

from benchmarks.over_http import served
from benchmarks.scale import Client
from tests.support.browser import PATH


CLIENTS = 8
OWNERS, TEAMS = 200, 40
WINDOW_OPENS_MS = 1000
"""A new window of Chromium loads its own pages for the address bar; a person's window was open before."""
NAME = "benchmark.paint.{:06}"
PAGES = {
    "nothing but some JSON": "/health",
    "overview": "/console",
    "event types, first page": "/console/event-types",
    "event types, a late page": "/console/event-types?offset={late}",
    "event types, search": "/console/event-types?q=00012",
    "event types of a label": "/console/event-types?label=team:7",
    "event types, unused": "/console/event-types?unused_days=1",
    "an event type": "/console/event-types/" + NAME.format(1),
    "subscriptions": "/console/subscriptions",
    "audit": "/console/audit",
}
FIGURES = """() => new Promise(done => {
  let shift = 0;
  new PerformanceObserver(list => { for (const each of list.getEntries()) shift += each.value })
    .observe({ type: "layout-shift", buffered: true });
  const [navigation] = performance.getEntriesByType("navigation");
  const painted = paints => done({
    answered: navigation.responseEnd,
    painted: paints.find(each => each.name === "first-contentful-paint").startTime,
    shift,
  });
  new PerformanceObserver(list => painted(list.getEntries())).observe({ type: "paint", buffered: true });
})"""


def create(client: Client, number: int) -> None:
    """Create an event type, and for each tenth one a subscription."""
    name = NAME.format(number)
    client.call(
        "POST",
        "/event-types",
        {
            "name": name,
            "owning_application": f"owner-{number % OWNERS}",
            "category": "undefined",
            "labels": {"team": str(number % TEAMS)},
            "schema": {"type": "json_schema", "schema": json.dumps({"properties": {"id": {"type": "string"}}})},
        },
    )
    if number % 10 == 0:
        client.call("POST", "/subscriptions", {"owning_application": f"owner-{number % OWNERS}", "event_types": [name]})


def create_all(url: str, count: int) -> None:
    """Create event types with some clients at the same time."""

    def some(first: int) -> None:
        client = Client(url)
        for number in range(first, count, CLIENTS):
            create(client, number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(some, range(CLIENTS)))


def opened(context: BrowserContext, address: str) -> dict[str, float]:
    """The figures of one navigation."""
    page = context.new_page()
    page.wait_for_timeout(WINDOW_OPENS_MS)
    page.goto(address)
    page.wait_for_load_state("networkidle")
    figures = page.evaluate(FIGURES)
    page.close()
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--event-types", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows: dict[str, dict[str, list[dict[str, float]]]] = {name: {"new": [], "known": []} for name in PAGES}
    with served(2) as url, sync_playwright() as playwright:
        create_all(url, options.event_types)
        print(f"{options.event_types:,} event types are created", file=sys.stderr)
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox", "--disable-dev-shm-usage"])
        for _ in range(options.rounds):
            for name, path in PAGES.items():
                context = browser.new_context(base_url=url)
                for files in ("new", "known"):
                    address = path.format(late=options.event_types - 100)
                    rows[name][files].append(opened(context, url + address))
                context.close()
        browser.close()
    print(f"{'page':<28}{'answered':>10}{'painted':>10}{'worst':>10}{'again':>10}{'layout shift':>14}")
    for name, by_files in rows.items():
        new, known = by_files["new"], by_files["known"]
        figures = [statistics.median(each[figure] for each in new) for figure in ("answered", "painted")]
        figures += [max(each["painted"] for each in new), statistics.median(each["painted"] for each in known)]
        shift = max(each["shift"] for each in new + known)
        print(f"{name:<28}" + "".join(f"{figure:>10.0f}" for figure in figures) + f"{shift:>14.4f}")


if __name__ == "__main__":
    main()
