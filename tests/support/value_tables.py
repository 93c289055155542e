"""The tables of the reference that the tests run: rows of a section, with the texts of their code spans."""

import codecs
import re
from pathlib import Path


REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
_CODE = re.compile(r"`(.*)`")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[nrt0\\])")


def rows_of(page: str, section: str) -> list[tuple[str, ...]]:
    """The rows of the only table of a section; a cell is its code span, or the text that it has, `empty` is nothing.

    Args:
        page: the name of a page of docs/reference, without its ending.
        section: the heading.
    """
    text = (
        (REFERENCE / f"{page}.md").read_text(encoding="utf-8").partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    )
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) > 2, f"{page} has no table in the section {section}"
    return [tuple(map(_cell, line.strip("|").split(" | "))) for line in lines[2:]]


def unescaped(text: str) -> str:
    r"""A text with what the escapes `\n`, `\r`, `\t`, `\0`, `\\` and `\ufeff` stand for."""
    return _ESCAPE.sub(lambda found: codecs.decode(found[0], "unicode_escape"), text)


def _cell(cell: str) -> str:
    code = _CODE.fullmatch(cell.strip())
    text = code[1].replace(r"\|", "|") if code else cell.strip()
    return "" if text == "empty" and not code else text
