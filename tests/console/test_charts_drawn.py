"""Charts in a real browser: drawn in place, in both themes, after each way to reach a page, and without scripts."""

import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.browser import needs_browser
from tests.support.builders import event_type_body
from tests.support.metrics_history import server_without_samples, write_history


pytestmark = [needs_browser, pytest.mark.slow]

NAME = "charts.drawn"
DAY_MINUTES = 24 * 60
PLAIN = {"category": "undefined", "enrichment_strategies": []}
WRITTEN = """window.texts = []; const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.texts.push(String(text));
    fillText.call(this, text, ...place);
  };"""
"""Keeps what charts write: the texts of their axes."""
COLOURED_COLUMNS = """canvas => {
  const { width, height } = canvas, { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const columns = new Set();
  for (let at = 0; at < data.length; at += 4) {
    const [red, green, blue, alpha] = data.slice(at, at + 4);
    if (alpha > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 100) columns.add((at / 4) % width);
  }
  return columns.size;
}"""
"""How many columns of pixels have the colour of a line: axes and texts are grey."""
CLOCKS = "window.texts.filter(text => text.includes(':'))"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A broker with an event type, a subscription that lags, and the metrics of an hour."""
    data = tmp_path_factory.mktemp("data") / "rioni"
    with server_without_samples(data) as running:
        with running.client() as api:
            api.post("/event-types", json=event_type_body(name=NAME, **PLAIN)).raise_for_status()
            api.post(f"/event-types/{NAME}/events", json=[{"order_id": "1"}]).raise_for_status()
            body = {"owning_application": "shop", "event_types": [NAME], "read_from": "begin"}
            running.subscription = api.post("/subscriptions", json=body).json()["id"]
            begin = {"items": [{"event_type": NAME, "offset": "BEGIN"}]}
            api.patch(f"/subscriptions/{running.subscription}/cursors", json=begin).raise_for_status()
        running.pages = ("/", f"/event-types/{NAME}", f"/subscriptions/{running.subscription}")
        write_history(data / "scratch/metrics", int(1_000 * time.time()), [NAME], [running.subscription])
        yield running


@pytest.fixture
def page(browser, shop):
    context = browser.new_context(base_url=f"{shop.url}/console", reduced_motion="reduce")
    page, errors = context.new_page(), []
    page.on("console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors


def drawn(page, count):
    """Waits until all charts are drawn by uPlot."""
    expect(page.locator("figure.chart .uplot canvas")).to_have_count(count)


def test_charts_take_the_place_that_was_kept_for_them(page, shop):
    page.add_init_script(
        """window.shifts = []; new PerformanceObserver(list => {
          const moved = ({node}) => (node?.outerHTML ?? node?.nodeName ?? "").slice(0, 200);
          for (const entry of list.getEntries()) window.shifts.push([entry.value, ...entry.sources.map(moved)]);
        }).observe({type: "layout-shift", buffered: true});"""
    )

    def late(route):
        page.wait_for_timeout(300)
        route.continue_()

    page.route("**/uplot-*.css", late)
    for path, count in zip(shop.pages, (6, 2, 2), strict=True):
        page.goto(f"{shop.url}/console{path}")
        drawn(page, count)
        page.wait_for_load_state("networkidle")
        # A number of one more digit moves its neighbour by less; a chart of another height is far above.
        shifts = page.evaluate("window.shifts")
        assert sum(value for value, *_ in shifts) < 0.005, shifts
        assert page.locator("figure.chart").first.bounding_box()["height"] > 200
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()


def test_the_theme_of_a_chart_is_that_of_the_page(page, shop):
    page.emulate_media(color_scheme="light")
    page.goto(f"{shop.url}/console")
    drawn(page, 6)

    def pixels():
        return page.locator("figure.chart canvas").first.evaluate("canvas => canvas.toDataURL()")

    before = pixels()
    page.locator("[data-theme-toggle]").click()
    page.wait_for_function("before => document.querySelector('figure.chart canvas').toDataURL() !== before", arg=before)


def test_charts_are_drawn_after_links_and_removed_with_their_page(page, shop):
    page.goto(f"{shop.url}/console")
    drawn(page, 6)
    page.locator(".menu a", has_text="Event types").click()
    page.wait_for_url("**/event-types")
    page.locator("h1", has_text="Event types").wait_for()
    page.locator("table a", has_text=NAME).click()
    page.wait_for_url(f"**/{NAME}")
    drawn(page, 2)
    page.locator(".menu a", has_text="Overview").click()
    drawn(page, 6)


def test_a_chart_says_what_was_at_the_time_that_is_pointed_at(page, shop):
    page.goto(f"{shop.url}/console")
    drawn(page, 6)
    chart = page.locator("figure.chart").first
    value = chart.locator("li b")
    now = value.inner_text()
    chart.locator(".u-over").hover(position={"x": 40, "y": 20})
    page.wait_for_function("() => document.querySelector('figure.chart time').textContent.endsWith('UTC')")
    assert value.inner_text() != now
    # The other charts show the same time.
    assert page.locator("figure.chart time").nth(1).inner_text() == chart.locator("time").inner_text()


def test_axes_of_durations_have_no_fractions_of_minutes(page, shop):
    def longer(route):
        history = route.fetch().json()
        for series in history["series"]:
            if series["name"] == "lag_seconds":
                series["values"] = [320] * len(history["times"])
        route.fulfill(json=history)

    page.add_init_script(WRITTEN)
    page.route("**/metrics/history?**", longer)
    page.goto(f"{shop.url}/console")
    drawn(page, 6)
    page.wait_for_function("() => ['0 s', '2 min', '4 min'].every(text => window.texts.includes(text))")
    assert not page.evaluate("window.texts.filter(text => /[.].* min/.test(text))")


def test_a_duration_between_two_gaps_is_drawn(page, shop):
    """With few events published, most durations are alone: a line through one point would be invisible."""
    shown = []
    for value in (None, 0.25):

        def alone(route, *, value=value):
            history = route.fetch().json()
            for series in history["series"]:
                if series["name"] == "publish_seconds":
                    series["values"] = [None] * len(history["times"])
                    series["values"][len(history["times"]) // 2] = value
                    series["values"][0] = series["values"][1] = 0.5
            route.fulfill(json=history)

        page.route("**/metrics/history?**", alone)
        page.goto(f"{shop.url}/console")
        drawn(page, 6)
        chart = page.locator("figure.chart", has_text="Publishing takes")
        expect(chart.locator("li span")).to_have_text(["99th percentile", "median"])
        expect(chart.locator("li b").first).to_have_text("500 ms" if value is None else "250 ms")
        shown.append(chart.locator("canvas").evaluate(COLOURED_COLUMNS))
        page.unroute("**/metrics/history?**")
    assert shown[1] - shown[0] >= 3


def test_charts_show_times_of_the_zone_that_the_page_shows(browser, shop):
    # Nepal's clocks are 5:45 ahead: hours and minutes of another zone would be wrong.
    context = browser.new_context(base_url=shop.url, timezone_id="Asia/Kathmandu", reduced_motion="reduce")
    page = context.new_page()
    page.add_init_script(WRITTEN)
    page.goto("/console")
    drawn(page, 6)
    chart = page.locator("figure.chart").first
    pointed = chart.locator("figcaption time")
    chart.locator(".u-over").hover(position={"x": 40, "y": 20})
    expect(pointed).to_have_text(re.compile(r"^\d\d:\d\d:\d\d UTC$"))
    utc = minutes_of(pointed.inner_text())
    check_axis(page.evaluate(CLOCKS), utc)
    page.evaluate("window.texts = []; document.querySelector('[data-zone-toggle]').click()")
    expect(pointed).to_have_text(re.compile(r"^\d\d:\d\d:\d\d \+05:45$"))
    local = minutes_of(pointed.inner_text())
    assert (local - utc) % DAY_MINUTES == 5 * 60 + 45
    page.wait_for_function(f"() => {CLOCKS}.length")
    check_axis(page.evaluate(CLOCKS), local)
    # The content until charts are drawn.
    page.route("**/uplot-*.js", lambda route: route.abort())
    page.reload()
    ends = chart.locator("p.ends time")
    expect(ends).to_have_text([re.compile(r"^\d\d:\d\d \+05:45$")] * 2)
    check_axis(ends.all_inner_texts(), local)
    context.close()


def minutes_of(text):
    """The minutes of a day that a clock shows."""
    return 60 * int(text[:2]) + int(text[3:5])


def check_axis(texts, minutes):
    """All of these are within the hour that charts show, give or take what passes during a test."""
    assert texts
    apart = [(minutes_of(text) - minutes) % DAY_MINUTES for text in texts]
    assert all(min(each, DAY_MINUTES - each) < 90 for each in apart), texts


@pytest.mark.chromium
def test_what_charts_show_can_be_read_without_scripts(browser, shop):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{shop.url}/console")
    assert page.locator("figure.chart svg").count() == 6
    assert page.locator("figure.chart").first.locator("li b").inner_text().endswith("/s")
    rows = page.locator("section", has_text="Who lags most").last.locator("tbody tr")
    assert rows.count() == 1
    assert page.locator("section", has_text="Nodes").last.locator("tbody tr:not(.group)").count() == 1
    for path, label in (
        ("/event-types", f"Published events of {NAME}"),
        ("/subscriptions", "Unconsumed events of shop"),
        (f"/subscriptions/{shop.subscription}", "Unconsumed events of partition 0"),
    ):
        page.goto(f"{shop.url}/console{path}")
        page.locator(f'svg[aria-label^="{label}, last hour: now"]').wait_for()
    context.close()
