"""The console by keyboard alone: what can be clicked is reached, and each shortcut works."""

import pytest

from tests.console.sample import ADDRESSES
from tests.support.browser import needs_browser


pytestmark = [needs_browser, pytest.mark.slow]

FOCUSABLE = "a[href], button:enabled, input:not([type=hidden]), select, textarea, summary"
STEPS_MAX = 150
_MARK = "document.addEventListener('focusin', event => event.target.setAttribute('data-reached', ''))"
_MISSED = """all => all.filter(each => each.checkVisibility({visibilityProperty: true})
  && !each.hasAttribute('data-reached')).map(each => each.outerHTML)"""


@pytest.fixture
def page(browser, broker):
    """A page of a new browser."""
    context = browser.new_context(base_url=broker.url, reduced_motion="reduce")
    yield context.new_page()
    context.close()


def tab_to(page, selector):
    """Press Tab until an element has the focus."""
    for _ in range(STEPS_MAX):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {selector}")


def test_everything_that_can_be_used_is_reached(page, sample):
    for path in ADDRESSES:
        page.goto(f"/console{path.format(**sample)}")
        page.evaluate(_MARK)
        # Firefox stops at what can be scrolled, too, and after the last element at its own buttons.
        for _ in range(STEPS_MAX):
            if not (missed := page.locator(FOCUSABLE).evaluate_all(_MISSED)):
                break
            for _ in missed:
                page.keyboard.press("Tab")
        assert not missed, path


def test_shortcuts(page):
    page.goto("/console/audit")
    page.keyboard.press("?")
    page.keyboard.type("e")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    first = page.locator("#palette a").first.inner_text()
    assert page.evaluate("document.activeElement.textContent") == first
    page.keyboard.press("Escape")
    assert page.locator("#palette[open]").count() == 0
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    rows = page.locator("main tbody th a")
    assert page.evaluate("document.activeElement.textContent") == rows.first.inner_text()
    page.keyboard.press("/")
    page.keyboard.type("ge")
    assert page.locator("#search").input_value() == "ge"


def test_what_is_refreshed_keeps_the_focus(page, streamed):
    page.goto(f"/console/subscriptions/{streamed['id']}")
    page.locator("#partitions [value=close]").evaluate("each => { each.dataset.before = ''; each.focus() }")
    page.wait_for_function("() => !document.querySelector('[data-before]')")
    assert page.evaluate("document.activeElement.value") == "close"
    page.goto("/console/jobs")
    page.locator("#jobs [data-copy]").first.focus()
    for _ in range(2):
        with page.expect_response("**/console/jobs"):
            pass
    assert page.evaluate("document.activeElement.textContent") == "Copy"


def test_commands_lead_to_event_types(page, event_type):
    name = event_type("console.commanded")
    page.goto("/console/jobs")
    page.keyboard.press("Control+k")
    page.keyboard.type("e.commanded")
    page.locator("#palette").get_by_text(name, exact=True).wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/event-types/{name}")
