"""Writes the pages of the documentation about commands, `docs/cli/*.md`: `python -m tests.support.cli_docs`."""

from pathlib import Path

from rioni.cli.commands import SECTIONS
from rioni.cli.documentation import cheats_as_markdown, section_as_markdown


FOLDER = Path(__file__).parents[2] / "docs" / "cli"


def generated() -> dict[Path, str]:
    """The text of each page by its path."""
    pages = {FOLDER / f"{section}.md": section_as_markdown(section) for section in SECTIONS}
    return pages | {FOLDER / "cheats.md": cheats_as_markdown()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in generated().items():
        path.write_text(text)
