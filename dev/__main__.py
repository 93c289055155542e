"""Writes all files that are generated: `python -m dev`. A test checks that they are current."""

from pathlib import Path

from dev import docs, new_sqlite, sync_client


def generated() -> dict[Path, str]:
    """The text of each generated file."""
    return docs.pages() | sync_client.modules() | new_sqlite.script()


def stale() -> dict[Path, str | None]:
    """The files to be written, with their texts; None for files to be removed."""
    wanted = generated()
    found = {
        path: path.read_text(encoding="utf-8")
        for path in {*wanted, *docs.written(), *sync_client.written()}
        if path.exists()
    }
    return {path: wanted.get(path) for path in {*wanted, *found} if found.get(path) != wanted.get(path)}


if __name__ == "__main__":
    for path, text in stale().items():
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8")
