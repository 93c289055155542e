"""A real web browser."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


PATH = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(PATH is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser."""
    with sync_playwright() as playwright:
        # The pages are our own; in containers tests run as root, and with little shared memory.
        browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
