"""A real web browser: Chromium, or Firefox with `--browser firefox`."""

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, expect, sync_playwright


PATH = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
"""The shell is the same Chromium without windows, which take most of the CPU of a test."""
FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
PATIENCE_MS = 120_000
"""For what a page shows in the end, on a busy machine."""
COUNT_MOVES = """
  window.moved = 0;
  if (PerformanceObserver.supportedEntryTypes.includes("layout-shift"))
    new PerformanceObserver(list => list.getEntries().forEach(entry => { window.moved += entry.value }))
      .observe({type: "layout-shift", buffered: true});"""
"""Adds up how far a page moves, in the browsers that measure it."""
needs_browser = pytest.mark.skipif(PATH is None, reason="needs a browser: apt-get install chromium")


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless browser; what tests expect of pages may take its time."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        if request.config.getoption("browser") == "firefox":
            browser = _firefox(playwright, tmp_path_factory.mktemp("firefox") / "firefox")
        else:
            # The pages are our own; in containers tests run as root, and with little shared memory.
            browser = playwright.chromium.launch(executable_path=PATH, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


def _firefox(playwright: Playwright, program: Path) -> Browser:
    """The Firefox of the system, with less motion always, as Playwright has no other way to ask it for that."""
    if FIREFOX is None:
        pytest.skip("needs Firefox: apt-get install firefox-esr")
    relay = shlex.join([sys.executable, str(Path(__file__).with_name("firefox_relay.py")), FIREFOX])
    program.write_text(f'#!/bin/sh\nexec {relay} "$@"\n')
    program.chmod(0o700)
    return playwright.firefox.launch(
        channel="moz-firefox", executable_path=program, firefox_user_prefs={"ui.prefersReducedMotion": 1}
    )
