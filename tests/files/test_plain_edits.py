"""Changes of small text files: at once or not at all, with the owner and mode that they had."""

import os
import stat
from pathlib import Path

import pytest

from rioni.files.plain import edited


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_changed_with_its_mode(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    path.chmod(0o640)
    with edited(path) as file:
        assert file.text == "before"
        file.text = "after"
    assert path.read_text() == "after"
    assert _mode(path) == 0o640


def test_a_new_file_is_for_its_owner_alone(tmp_path):
    with edited(tmp_path / "a") as file:
        file.text = "new"
    assert (tmp_path / "a").read_text() == "new"
    assert _mode(tmp_path / "a") == 0o600


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "a").write_text("before")
    (tmp_path / "link").symlink_to("a")
    with edited(tmp_path / "link") as file:
        file.text = "after"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "after"


def test_an_error_leaves_everything_as_it_was(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    with pytest.raises(KeyError), edited(path) as file:
        file.text = {}["after"]
    assert path.read_text() == "before"
    assert {each.name for each in tmp_path.iterdir()} == {"a", ".a.lock"}


def test_only_one_process_at_a_time_changes_a_file(tmp_path):
    with edited(tmp_path / "a") as file:
        with pytest.raises(BlockingIOError), edited(tmp_path / "a"):
            pass
        file.text = "first"
    assert (tmp_path / "a").read_text() == "first"


def test_a_lock_that_is_no_file_is_refused(tmp_path):
    (tmp_path / "a").write_text("before")
    os.mkfifo(tmp_path / ".a.lock")
    with pytest.raises(OSError, match="is no regular file; take it away"), edited(tmp_path / "a"):
        pass
    assert (tmp_path / "a").read_text() == "before"


def test_the_lock_is_for_its_owner_alone(tmp_path):
    umask = os.umask(0)
    try:
        with edited(tmp_path / "a"):
            pass
    finally:
        os.umask(umask)
    assert _mode(tmp_path / ".a.lock") == 0o600
