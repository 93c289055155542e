"""The page at /docs in a real browser: complete, readable, usable by keyboard, and harmless to its reader.

Source: reference operations#description.
"""

import copy
import re

import httpx
import pytest

from rioni.http.openapi.document import document
from rioni.http.openapi.page import POLICY, render
from tests.support.browser import needs_browser
from tests.support.waiting import WAIT_S


pytestmark = needs_browser

DOCUMENT = document()
OPERATIONS = [
    (path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]
SIZES = {"desktop": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
HOSTILE = """<img src=x onerror="window.ran=1"><script>window.ran=1</script>'"`</code><svg onload=window.ran=1>"""
CONTRAST_MIN = 4.5
# The luminance of text and of the nearest opaque background, as WCAG 2 defines it.
POOR_CONTRAST = """minimum => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const linear = value => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const found = channels(getComputedStyle(element).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *:not(style)")].filter(
    element => [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  return texts.map(element => {
    const colours = [channels(getComputedStyle(element).color), ground(element)];
    const [dark, light] = colours.map(luminance).sort((a, b) => a - b);
    return [(light + 0.05) / (dark + 0.05), element.outerHTML.slice(0, 80)];
  }).filter(([ratio]) => ratio < minimum);
}"""

# The heading of each operation, by its id.
SHOWN = """Object.fromEntries([...document.querySelectorAll("article .call")].map(call => {
  const heading = call.parentElement.querySelector("h3");
  return [heading.id, [heading.innerText, call.innerText]];
}))"""


@pytest.fixture
def open_page(browser, server):
    """Opens /docs; any error that the browser reports fails the test."""
    contexts, errors = [], []

    def open_page(size="desktop", **options):
        context = browser.new_context(viewport=SIZES[size], **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{server.url}/docs")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.mark.one_server
def test_the_page_loads_no_other_resources(browser, server):
    context = browser.new_context()
    page, requested = context.new_page(), []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{server.url}/docs", wait_until="networkidle")
    context.close()
    assert requested == [f"{server.url}/docs"]


def test_every_operation_is_listed_and_shown(open_page):
    page = open_page()
    shown = page.evaluate(SHOWN)
    listed = page.evaluate("[...document.querySelectorAll('nav li a')].map(link => link.getAttribute('href'))")
    for path, method, operation in OPERATIONS:
        heading, call = shown[operation["operationId"]]
        assert heading.startswith(operation["summary"])
        assert call == f"{method.upper()} {path}"
        assert f"#{operation['operationId']}" in listed


def test_every_link_has_a_target(open_page, server):
    page = open_page()
    links = set(page.evaluate("[...document.querySelectorAll('a')].map(link => link.getAttribute('href'))"))
    ids = set(page.evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)"))
    assert {link[1:] for link in links if link.startswith("#")} <= ids
    assert {link for link in links if not link.startswith("#")} == {"/openapi.json"}
    assert httpx.get(f"{server.url}/openapi.json", timeout=WAIT_S).json() == DOCUMENT


def test_ids_are_unique(open_page):
    ids = open_page().evaluate("[...document.querySelectorAll('[id]')].map(element => element.id)")
    assert len(ids) == len(set(ids))


def test_a_link_of_the_contents_shows_its_operation(open_page):
    page = open_page()
    page.locator("nav").get_by_text("Publish events", exact=True).click()
    assert page.url.endswith("#publish-events")
    assert page.locator("#publish-events").bounding_box()["y"] < SIZES["desktop"]["height"] / 2


def test_the_page_can_be_used_by_keyboard_alone(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.locator(".skip").bounding_box()["x"] == 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    focused = page.evaluate("[document.activeElement.tagName, getComputedStyle(document.activeElement).outlineStyle]")
    assert focused == ["PRE", "solid"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_enough_contrast(open_page, scheme):
    assert open_page(color_scheme=scheme).evaluate(POOR_CONTRAST, CONTRAST_MIN) == []


@pytest.mark.parametrize("size", SIZES)
def test_the_page_is_as_wide_as_the_window(open_page, size):
    page = open_page(size)
    assert page.evaluate("document.documentElement.scrollWidth") == SIZES[size]["width"]


def test_text_of_the_document_is_never_interpreted_as_markup(open_page, server):
    page = open_page()
    page.route("**/docs", lambda route: route.fulfill(body=render(_hostile(DOCUMENT)), content_type="text/html"))
    page.goto(f"{server.url}/docs")
    assert page.evaluate("window.ran") is None
    assert page.locator("script, img, svg").count() == 0
    assert HOSTILE.replace("`", "") in page.locator("main").inner_text().replace("`", "")


def test_no_injected_script_runs(browser, server):
    context = browser.new_context()
    page = context.new_page()
    body = render(DOCUMENT).replace("</main>", f"{HOSTILE}<p id=last></p></main>")
    headers = {"Content-Security-Policy": POLICY, "Content-Type": "text/html"}
    page.route("**/docs", lambda route: route.fulfill(body=body, headers=headers))
    page.goto(f"{server.url}/docs")
    assert page.locator("#last").count() == 1
    assert page.evaluate("window.ran") is None
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).position") == "sticky"
    context.close()


def _hostile(value):
    """A document in which every free text attacks its reader."""
    if isinstance(value, dict):
        return {
            name: HOSTILE
            if name in ("description", "summary", "title", "detail") and isinstance(each, str)
            else _hostile(each)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_hostile(each) for each in value]
    return copy.copy(value)


def test_the_answer_forbids_what_the_page_does_not_need(client):
    headers = client.get("/docs", headers={"Accept": "text/html"}).headers
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert re.match(r"default-src 'none'; style-src 'sha256-[\w+/]+='", headers["content-security-policy"])
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
