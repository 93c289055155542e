"""Every page in a real browser: without errors, accessible in both themes, on narrow screens, with hostile texts in it.

Pages are taken from the table of pages: a new one is tested here as soon as `EXAMPLES` says where it is.
"""

import pytest
from axe_playwright_python.sync_playwright import Axe

from rioni.console.pages.table import PAGES, SECTIONS
from tests.support.browser import needs_browser


pytestmark = [needs_browser, pytest.mark.slow]

HOSTILE = """<img src=x onerror="window.ran=1"><script>window.ran=1</script>'"`{{7*7}}${7*7}<svg onload=window.ran=1>"""
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
EXAMPLES = {}
"""An address of each page; those with names in their paths are filled in by `example`."""


@pytest.fixture(scope="module")
def sample(broker):
    """What pages show: an event type whose texts are hostile."""
    definition = {
        "name": "console.hostile",
        "owning_application": HOSTILE,
        "category": "undefined",
        "labels": {"team": "orders"},
        "annotations": {"note": HOSTILE},
        "schema": {"type": "json_schema", "schema": "{}"},
    }
    with broker.client() as api:
        assert api.post("/event-types", json=definition).status_code in {201, 409}
        api.post("/event-types/console.hostile/events", json=[{"text": HOSTILE}])
        wanted = {"owning_application": HOSTILE, "event_types": ["console.hostile"], "read_from": "begin"}
        subscription = api.post("/subscriptions", json=wanted).json()
    return {"name": "console.hostile", "id": subscription["id"], "position": 1}


@pytest.fixture
def open_page(browser, broker, sample):
    """Opens a page; any error that the browser reports fails the test."""
    contexts, errors = [], []

    def open_page(path, *, size="desktop", **options):
        context = browser.new_context(viewport=SIZES[size], **options)
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


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_page_is_accessible(open_page, path, theme):
    page = open_page(EXAMPLES.get(path, path), color_scheme=theme)
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_page_fits_a_phone(open_page, path):
    page = open_page(EXAMPLES.get(path, path), size="phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1")


@pytest.mark.parametrize("path", [page.path for page in PAGES])
def test_every_page_can_be_read_without_scripts(open_page, path):
    page = open_page(EXAMPLES.get(path, path), java_script_enabled=False)
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
