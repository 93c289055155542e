"""Installs packages with projections of users, as far as tests need them installed."""

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rioni.projections import custom, custom_tables


DOCS = Path(__file__).parents[2] / "docs" / "operating" / "custom-projections.md"


class Offered(NamedTuple):
    """An entry point."""

    group: str
    value: str
    offered: object

    def load(self) -> object:
        """Return the offered object."""
        return self.offered


def install(monkeypatch: pytest.MonkeyPatch, projections: Sequence[object]) -> None:
    """Let this process find projections as if packages offered them."""
    found = [Offered(custom.GROUP, f"tests:{number}", each) for number, each in enumerate(projections)]
    monkeypatch.setattr(custom, "entry_points", lambda group: [each for each in found if each.group == group])
    forget()


def forget() -> None:
    """Let this process look for installed projections again."""
    custom.installed.cache_clear()
    custom_tables.live_tables.cache_clear()


def install_example(folder: Path) -> None:
    """Put the example of the documentation into a folder that is to be on the path of Python."""
    code, project = re.findall(r"```(?:python|toml)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.splitlines()) < 40
    (folder / "owners.py").write_text(code)
    metadata = folder / "owners-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: owners\nVersion: 1.0\n")
    group, entry = re.search(r'entry-points\."(.*?)"\]\n(.*)\n', project).groups()
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry.replace(chr(34), '')}\n")


@contextlib.contextmanager
def example_found_in(folder: Path) -> Iterator[None]:
    """Let this process find the example that was installed into a folder."""
    sys.path.insert(0, str(folder))
    forget()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("owners", None)
        forget()
