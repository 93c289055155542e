"""The documentation: it builds without a warning, its links have targets, and it is complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from dev import console_pictures
from rioni.console.app import PAGES as CONSOLE_PAGES
from rioni.http.metrics.collectors import Metrics
from tests.support.browser import browser, needs_browser


ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts)]
__all__ = ["browser"]  # a fixture
DIAGRAMS = {path: path.read_text().count("\n```mermaid\n") for path in PAGES if "\n```mermaid\n" in path.read_text()}
DRAWN = """count => document.querySelectorAll("pre.mermaid > svg").length === count
  && getComputedStyle(document.querySelector("pre.mermaid .actor, pre.mermaid .node rect")).fill"""
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
SETUP = "python3 -m venv .venv && .venv/bin/pip install --quiet 'tox>=4.30' tox-uv"
TEST_COMMAND = f"{SETUP} && .venv/bin/tox run-parallel --parallel-live"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation as HTML, built as strictly as Sphinx can."""
    target = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-n",
        "-T",
        "-W",
        "-q",
        "-d",
        str(target / "doctrees"),
        "docs",
        str(target),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.mark.slow
def test_every_page_is_in_the_site(site: Path):
    for page in ROOT.glob("docs/**/*.md"):
        if "_build" not in page.parts:
            assert (site / page.relative_to(ROOT / "docs")).with_suffix(".html").exists()


@pytest.mark.slow
@needs_browser
def test_every_diagram_is_drawn_in_the_colours_of_the_page_without_a_network(site: Path, browser):
    assert DIAGRAMS
    for path, count in DIAGRAMS.items():
        page = browser.new_page(color_scheme="light", offline=True)
        page.goto((site / path.relative_to(ROOT / "docs")).with_suffix(".html").as_uri())
        light = page.wait_for_function(DRAWN, arg=count).json_value()
        page.evaluate("document.body.dataset.theme = 'dark'")
        page.wait_for_function(f"count => ![false, '{light}'].includes(({DRAWN})(count))", arg=count)
        assert page.get_by_text("Syntax error").count() == 0
        page.close()


def test_no_page_needs_the_build_to_be_read():
    """GitHub and GitLab draw diagrams, but know neither directives and roles of Sphinx nor lists of definitions."""
    foreign = re.compile(r"^ *[`:]{3,}\{.*|^: .*|(?:^|\s)\{\w+\}`[^`\n]+`", re.MULTILINE)
    texts = {path.name: path.read_text() for path in PAGES}
    assert not [f"{name}: {found}" for name, text in texts.items() for found in foreign.findall(text)]


def test_relative_links_have_targets():
    links = [(page, target) for page in PAGES for target in LINK.findall(page.read_text()) if "://" not in target]
    assert links
    assert [(str(page), target) for page, target in links if not (page.parent / target).exists()] == []


def test_the_readme_opens_with_two_lines_and_ci_runs_the_second():
    section = (ROOT / "README.md").read_text().split("## Quick start")[1].split("\n## ")[0]
    first, second = re.findall(r"```sh\n(.*?)\n```", section, re.DOTALL)
    assert "\n" not in first
    assert first.endswith("rioni demo")
    assert second == TEST_COMMAND
    assert TEST_COMMAND in (ROOT / ".ci/run").read_text().splitlines()


@pytest.mark.slow
def test_the_quick_start_works(tmp_path: Path):
    text = (ROOT / "docs/quickstart.md").read_text()
    serve, *blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert serve.startswith(".venv/bin/rioni serve ")
    arguments = [
        sys.executable,
        "-m",
        "rioni",
        "serve",
        "--port",
        "0",
        "--data",
        str(tmp_path / "data"),
        "--workers",
        "1",
    ]
    with subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = next(found[1] for line in server.stderr if (found := re.search(r"http://(\S+:\d+)", line)))
            script = "".join(blocks[:3]).replace("localhost:8080", address)
            done = subprocess.run(["bash", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        finally:
            server.terminate()
    assert done.returncode == 0, done.stderr
    assert '"publishing_status":"failed"' in done.stdout
    streamed, committed = done.stdout.split("HTTP/1.1 204")
    assert '"events":[{"order": "1"' in streamed
    assert '"offset":"001-0001-000000000000000000"' in committed


def test_the_readme_names_the_nine_parts_in_order():
    names = ["domain", "commands", "projections", "http", "storage", "tests", "docs", "tox.ini", "pyproject.toml"]
    assert re.findall(r"^\| ([\w.]+) \| \[", (ROOT / "README.md").read_text(), re.MULTILINE) == names


def test_tests_that_the_documentation_cites_exist():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/api/weaknesses.md").read_text()))
    found = {name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}
    assert named
    assert named - found == set()


def test_every_metric_is_documented():
    page = (ROOT / "docs/operating/monitoring.md").read_text()
    lines = generate_latest(Metrics().registry()).decode().splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# HELP rioni_")]
    assert names
    assert [name for name in names if f"`{name}`" not in page and not name.endswith("_created")] == []


def test_the_tour_shows_every_page_of_the_console():
    shown = re.findall(r"\]\(_static/console/(\S+)\.webp\)", (ROOT / "docs/console.md").read_text())
    assert sorted(shown) == sorted(console_pictures.NAMES)
    assert {path.stem for path in (ROOT / "docs/_static/console").iterdir()} == {*shown}
    pictures = (*console_pictures.PICTURES.values(), *console_pictures.GUARDED.values())
    paths = [picture.path.partition("?")[0] for picture in pictures]
    for page in CONSOLE_PAGES:
        pattern = re.sub(r"\{\w+\}", "[^/]+", page.path)
        assert any(re.fullmatch(pattern, path) for path in paths), page.path


@pytest.mark.nightly
@needs_browser
def test_all_pictures_of_the_tour_can_be_taken(tmp_path: Path):
    # In a separate process: this one may have a browser open for other tests.
    command = [sys.executable, "-m", "dev.console_pictures", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    assert {path.stem for path in tmp_path.iterdir()} == {*console_pictures.NAMES}
