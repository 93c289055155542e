"""Dead letters in a real browser: by mouse, by keyboard alone, and with scripts switched off."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.console.dead_letters import letters_of
from tests.console.sample import HOSTILE
from tests.console.test_pages_keyboard import tab_to
from tests.support.browser import PATIENCE_MS, needs_browser
from tests.support.dead_letters import REASON


pytestmark = [needs_browser, pytest.mark.slow]

PHONE = {"width": 390, "height": 844}
PREVIEW, REDRIVE = "button[name=preview]", "#redrive [name=action]"


@pytest.fixture
def open_page(browser, broker):
    """Opens a page in a new browser; what goes wrong there fails the test."""
    contexts, errors = [], []

    def open_page(path, **options):
        contexts.append(browser.new_context(base_url=broker.url, reduced_motion="reduce", **options))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


def check_looks(page):
    """Accessible in both themes, on a phone as well, and no script of others has run."""
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    size = page.viewport_size
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    page.set_viewport_size(size)
    assert page.evaluate("window.ran") is None


def test_by_mouse_many_are_published_in_steps_that_follow_each_other(open_page, broker):
    letters = letters_of(broker, "console.letters-mouse")
    letters.write(0, 1_200)
    letters.write(1_200, 2, HOSTILE)
    page = open_page(letters.path)
    page.locator("table.letters summary").first.click()
    assert page.locator("table.letters details[open] pre").first.is_visible()
    page.locator("a.chip").click()
    page.wait_for_url("**reason=**")
    page.get_by_role("link", name="all reasons").click()
    page.wait_for_url(lambda url: "reason" not in url)
    page.locator(PREVIEW).click()
    page.wait_for_url("**preview=yes**")
    check_looks(page)
    page.get_by_label("go on until all are published").check()
    page.locator(REDRIVE).click()
    page.locator("#progress:not(:has(a))").wait_for()
    assert "1,202 of 1,202 are published again" in page.locator("#progress").inner_text()
    assert page.locator(REDRIVE).is_disabled()
    assert letters.events() == 1_202
    check_looks(page)


def test_steps_that_follow_each_other_can_be_stopped(open_page, broker):
    letters = letters_of(broker, "console.letters-stopped")
    letters.write(0, 1_001)
    page = open_page(f"{letters.path}&preview=yes")
    page.get_by_label("go on until all are published").check()
    # The next step waits for its timer, whose clock is paused.
    page.clock.install(time=0)
    page.clock.pause_at(3_600)
    page.locator(REDRIVE).click()
    page.get_by_role("link", name="Stop", exact=True).click()
    page.wait_for_url(lambda url: "preview" not in url)
    assert letters.events() == 1_000


def test_by_keyboard_alone(open_page, broker):
    letters = letters_of(broker, "console.letters-keys")
    letters.write(0, 2)
    letters.write(2, 1, "another")
    page = open_page(letters.path)
    tab_to(page, "[name=reason]")
    page.keyboard.type("another")
    tab_to(page, PREVIEW)
    page.keyboard.press("Enter")
    page.wait_for_url("**preview=yes**")
    tab_to(page, REDRIVE)
    page.keyboard.press("Enter")
    page.locator(".banner.done").wait_for()
    assert letters.events() == 1
    tab_to(page, "table.letters summary")
    page.keyboard.press("Enter")
    assert page.locator("table.letters details[open] pre").is_visible()


@pytest.mark.chromium
def test_without_scripts(open_page, broker):
    letters = letters_of(broker, "console.letters-plain")
    letters.write(0, 1_001)
    page = open_page(letters.path, java_script_enabled=False)
    assert page.locator("tr.group").inner_text() == f"{REASON} 100"
    assert page.locator(REDRIVE).is_disabled()
    page.locator(PREVIEW).click()
    assert page.get_by_label("go on until all are published").is_hidden()
    page.locator(REDRIVE).click()
    assert "1,000 of 1,001" in page.locator("#progress").inner_text()
    page.locator(REDRIVE).click()
    assert "1,001 of 1,001" in page.locator("#progress").inner_text()
    assert letters.events() == 1_001
