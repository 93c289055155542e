"""Files of locks: opened without waiting, and refused where something else is in their place."""

import ast
import os
import stat
from pathlib import Path

import pytest

from rioni.files.locks import open_lock, try_lock


ROOT = Path(__file__).parents[2]


def _socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, _socket, lambda path: path.symlink_to("other"), lambda path: path.symlink_to("missing")],
    ids=["pipe", "folder", "socket", "link", "link to nothing"],
)
def test_a_lock_that_is_no_file_is_refused(tmp_path, make):
    (tmp_path / "other").write_text("of others")
    make(tmp_path / "lock")
    with pytest.raises(OSError, match="is no regular file; take it away"):
        open_lock(tmp_path / "lock")
    assert (tmp_path / "other").read_text() == "of others"
    assert not (tmp_path / "missing").exists()


def test_a_lock_is_made_for_its_owner_alone_and_held_by_one(tmp_path):
    umask = os.umask(0)
    try:
        with open_lock(tmp_path / "lock") as first, open_lock(tmp_path / "lock") as second:
            assert try_lock(first.fileno())
            assert not try_lock(second.fileno())
    finally:
        os.umask(umask)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_every_lock_is_opened_in_this_way():
    """Others give `os.open` its flags: they lock files that hold something, in the folder of the broker itself."""
    found = []
    for path in (ROOT / "rioni").rglob("*.py"):
        tree = ast.parse(text) if "rioni.files.locks import" in (text := path.read_text()) else ast.Module([], [])
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "open"
            and any(isinstance(each, ast.Constant) and each.value == "w" for each in node.args)
        ]
    assert found == []
