"""The reference of the API's behaviour: cited sections exist, and every rule is cited by a test."""

import re
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[1]
PAGES = {path.stem: path for path in (ROOT / "docs/reference").glob("*.md") if path.stem != "index"}
HEADING = re.compile(r"^#{2,4} +(.+?) *$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CITATION = re.compile(r"\b[Rr]eference((?:,?\s+(?:#\s+)?[a-z][a-z-]*#[a-z0-9-]+)+)")
ANCHOR = re.compile(r"[a-z][a-z-]*#[a-z0-9-]+")


def slug(heading: str) -> str:
    """The anchor of a heading, as Markdown makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def sections() -> list[tuple[str, str]]:
    """The anchor of each heading, and the text up to the next one."""
    found = []
    for name, path in sorted(PAGES.items()):
        _, *parts = HEADING.split(FENCE.sub("a listing", path.read_text()))
        found += [
            (f"{name}#{slug(heading)}", text.strip()) for heading, text in zip(parts[::2], parts[1::2], strict=True)
        ]
    return found


def anchors() -> list[str]:
    return [anchor for anchor, _ in sections()]


def citations(folder: str) -> dict[str, set[str]]:
    """For each file below a folder the anchors that it cites."""
    found = {}
    for path in (ROOT / folder).rglob("*.py"):
        cited = {anchor for part in CITATION.findall(path.read_text()) for anchor in ANCHOR.findall(part)}
        if cited and path != Path(__file__):
            found[str(path.relative_to(ROOT))] = cited
    return found


def test_anchors_of_a_page_are_unique():
    found = anchors()
    assert len(found) == len(set(found)), sorted({each for each in found if found.count(each) > 1})


@pytest.mark.parametrize("folder", ["rioni", "tests", "benchmarks"])
def test_cited_sections_exist(folder):
    known = set(anchors())
    missing = {path: sorted(cited - known) for path, cited in citations(folder).items() if cited - known}
    assert not missing


def test_tests_cite_every_rule():
    """A heading with nothing but other headings below it is no rule."""
    cited = set().union(*citations("tests").values())
    assert not [anchor for anchor, text in sections() if text and anchor not in cited]


@pytest.mark.parametrize("heading", [("Hash strategy", "hash-strategy"), ("`eid` of events", "eid-of-events")])
def test_a_heading_has_the_anchor_that_markdown_gives_it(heading):
    assert slug(heading[0]) == heading[1]
