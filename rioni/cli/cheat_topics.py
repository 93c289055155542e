"""Topics of `rioni cheat`: shell scripts in `cheats`, whose comments are the words; tests run them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


FOLDER = Path(__file__).parent / "cheats"


class Example(NamedTuple):
    """Commands, and what they do."""

    words: str
    commands: str


class Topic(NamedTuple):
    """A topic.

    Args:
        name: of the file, without its ending.
        title: its first line.
        examples: in the order of the file; the first one may have words only.
    """

    name: str
    title: str
    examples: Sequence[Example]


def topics() -> dict[str, Topic]:
    """All topics by name."""
    return {path.stem: _parsed(path) for path in sorted(FOLDER.glob("*.sh"))}


def _parsed(path: Path) -> Topic:
    """A title, and paragraphs, each of which has comments and then commands."""
    title, *paragraphs = path.read_text(encoding="utf-8").strip().split("\n\n")
    return Topic(path.stem, title.removeprefix("# "), [_example(paragraph) for paragraph in paragraphs])


def _example(paragraph: str) -> Example:
    lines = paragraph.splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    words = " ".join(line.removeprefix("#").strip() for line in lines[:count])
    return Example(words, "\n".join(lines[count:]))
