"""Events in a real browser, on a desktop and on a phone: each is opened by a control that is in sight."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.browser import needs_browser


pytestmark = [needs_browser, pytest.mark.slow]

WIDTHS = (1280, 390)
SCHEMA = {"type": "json_schema", "schema": json.dumps({"properties": {f"member_{n}": {} for n in range(8)}})}
EXACT = 2**53 + 1
"""JavaScript has no such number."""
EVENT = {f"member_{n}": "a long value " * 9 for n in range(8)} | {"member_0": EXACT}


@pytest.fixture(params=WIDTHS)
def page(request, browser, broker):
    context = browser.new_context(
        base_url=broker.url, viewport={"width": request.param, "height": 900}, reduced_motion="reduce"
    )
    yield context.new_page()
    context.close()


def check_opened(page, width):
    """The first event is opened without scrolling sideways, and what it holds can be read."""
    summary = page.locator("table.events summary").first
    box = summary.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    summary.click()
    inside = page.locator("table.events details[open] pre").first.bounding_box()
    assert inside["x"] >= 0
    assert inside["x"] + inside["width"] <= width
    assert inside["width"] > 300
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("live", [False, True])
def test_an_event_is_opened_where_it_is_in_sight(page, api, event_type, live):
    width = page.viewport_size["width"]
    name = event_type(f"browsing.wide-{width}-{live}", category="undefined", enrichment_strategies=[], schema=SCHEMA)
    path = f"/event-types/{name}/events"
    api.post(path, json=[EVENT]).raise_for_status()
    page.goto(f"/console{path}")
    if live:
        page.get_by_role("button", name="Live").click()
        page.get_by_text("Live: waiting for events").wait_for()
        for _ in range(100):
            api.post(path, json=[EVENT]).raise_for_status()
            if page.locator("#events tbody tr").count() > 1:
                break
            page.wait_for_timeout(50)
        page.get_by_role("button", name="Pause").click()
    head = page.locator("#events thead th").all_inner_texts()
    assert head == ["Event", "Received", "Partition", "Offset", *(f"member_{n}" for n in range(5))]
    row = page.locator("#events tbody tr").first.locator("td").all_inner_texts()
    assert len(row) == len(head)
    assert row[2] == "0"
    assert row[3].startswith("001-0001-")
    assert row[4] == str(EXACT)
    check_opened(page, width)


def test_a_dead_letter_is_opened_where_it_is_in_sight(page, sample):
    page.goto(f"/console/subscriptions/{sample['id']}?tab=dead+letters")
    check_opened(page, page.viewport_size["width"])


def test_an_event_type_is_created_by_keyboard(page, api):
    width = page.viewport_size["width"]
    page.goto("/console/event-types")
    page.get_by_role("link", name="Create an event type").click()
    page.wait_for_url("**/create-event-type")
    page.get_by_label("Name").first.focus()
    page.keyboard.type(f"browsing.created-{width}")
    page.keyboard.press("Tab")
    page.keyboard.type("shop")
    area = page.locator("textarea[name=schema]")
    area.fill('{"type": "array"}')
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#error-schema")).to_contain_text("root element")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.get_by_label("Owning application").input_value() == "shop"
    area = page.locator("textarea[name=schema]")
    area.fill("{}")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url(re.compile(rf"/event-types/browsing\.created-{width}$"))
    assert api.get(f"/event-types/browsing.created-{width}").json()["owning_application"] == "shop"
