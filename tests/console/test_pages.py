"""Every page in a real browser: without errors, accessible in both themes, on narrow screens, with hostile texts in it.

Pages are taken from the table of pages, with their tabs.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe

from rioni.console.app import SECTIONS
from tests.console.sample import ADDRESSES
from tests.support.browser import needs_browser


pytestmark = [needs_browser, pytest.mark.slow]

SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture
def open_page(browser, broker, sample):
    """Opens a page; any error that the browser reports fails the test."""
    contexts, errors = [], []

    def open_page(path, *, size="desktop", **options):
        # Colours that fade from one theme into the other have no contrast to speak of.
        context = browser.new_context(viewport=SIZES[size], reduced_motion="reduce", **options)
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in {"error", "warning"} else None
        )
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{broker.url}/console{path.format(**sample)}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not errors


@pytest.mark.parametrize("path", [*ADDRESSES, "/event-types?as_of={position}"])
def test_every_page_is_accessible_in_both_themes_and_fits_a_phone(open_page, path):
    page = open_page(path)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size(SIZES["phone"])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")
    assert page.evaluate("window.ran") is None


@pytest.mark.both_modes
@pytest.mark.chromium
def test_every_page_can_be_read_without_scripts(open_page, sample):
    page = open_page("/", java_script_enabled=False)
    for path in ADDRESSES:
        page.goto(page.url.partition("/console")[0] + f"/console{path.format(**sample)}")
        assert page.locator("main h1").inner_text()
        assert page.locator("[data-palette]").is_hidden()


def test_keys_lead_to_every_section(open_page):
    page = open_page("/")
    for section in SECTIONS:
        page.keyboard.press("g")
        page.keyboard.press(section.key)
        page.wait_for_selector(f'.menu a[data-key="{section.key}"][aria-current]')


def test_the_search_and_the_commands_are_reached_by_keys(open_page):
    page = open_page("/")
    page.keyboard.press("/")
    page.keyboard.type("console.hostile")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/event-types?q=console.hostile")
    page.keyboard.press("Control+k")
    page.keyboard.type("overv")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/")


def test_the_theme_is_chosen_and_remembered(open_page):
    page = open_page("/", color_scheme="light")
    page.locator("[data-theme-toggle]").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
