"""Every command on the host refuses users who may not use the data directory, and leaves no files.

Source: reference authorization#commands-on-the-host.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.host.test_options_unusable_files import COMMANDS, FURTHER, OF_DOCTOR, check_one_line


NOBODY = 65_534
_VERSION = 0x2008_0522
_OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: what lets root read and write all files."""
_Header = ctypes.c_uint32 * 2
_Sets = ctypes.c_uint32 * 6
"""Effective, permitted and inheritable capabilities, of each 32 bits."""


@contextmanager
def without_override() -> Iterator[None]:
    """Let the modes of files count for this thread, also if it is root's, until the block ends."""
    if os.geteuid() != 0:
        yield
        return
    before = _Sets()
    _call("capget", before)
    _call("capset", _Sets(before[0] & ~_OVERRIDE, *before[1:]))
    try:
        yield
    finally:
        _call("capset", before)


def _call(name: str, sets: ctypes.Array[ctypes.c_uint32]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(_Header(_VERSION, 0), sets):
        raise OSError(ctypes.get_errno(), name)


WORDS = sorted(COMMANDS.keys() - OF_DOCTOR)
MAKING = [("serve",), ("demo",), ("restore",)]
"""Make a data directory that does not exist."""
pytestmark = pytest.mark.timeout(60)


def take_away(folder: Path) -> None:
    """Let a folder be of another user; of one who is not root, closed to its own."""
    if os.geteuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
    else:
        folder.chmod(0)


@pytest.fixture
def places(run, data, tmp_path):
    """The data of another user, what else commands read, and a folder to write to."""
    (tmp_path / "cluster.toml").write_text("")
    assert run("backup", "--data", "data", "--to", "good")[0] == 0
    assert run("audit", "checkpoint", "--data", "data", "--output", "some.checkpoint")[0] in (0, 2)
    take_away(Path(data))
    yield tmp_path
    Path(data).chmod(0o700)


def found(folder: Path) -> dict[str, tuple[int, ...]]:
    """All that is below a folder, with what a change would change; jobs are of the backup that was made before."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mode, path.lstat().st_uid, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.name.startswith("jobs.db") and path.name != "data"
    }


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_data_of_another_user_are_refused(run, places, words):
    before = found(places)
    with without_override():
        done = run(*words, *FURTHER.get(words, ()), "--data", "data")
    check_one_line(done, "data")
    assert found(places) == before


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_files_of_another_user_are_refused_in_a_folder_that_all_may_list(run, places, words):
    Path(places / "data").chmod(0o755)
    if os.geteuid() != 0:
        for path in (places / "data").rglob("*"):
            path.chmod(0)
    before = found(places)
    with without_override():
        check_one_line(run(*words, *FURTHER.get(words, ()), "--data", "data"), "data")
    assert found(places) == before


@pytest.mark.parametrize("words", MAKING, ids=" ".join)
def test_no_data_directory_is_made_where_the_user_may_not(run, places, words):
    before = found(places)
    with without_override():
        check_one_line(run(*words, *FURTHER.get(words, ()), "--data", "data/new"), "data/new")
    assert found(places) == before


@pytest.mark.parametrize(
    "command",
    [
        "config show --config data/rioni.toml",
        "tokens create --uid jane --file data/tokens.toml",
        "audit --config data/rioni.toml",
        "backup --data good/data --to data/backup",
        "audit consistency data/some.checkpoint --data new",
        "man --to data/man",
    ],
)
def test_what_an_option_names_is_refused_where_the_user_may_not(run, places, command):
    before = found(places)
    with without_override():
        check_one_line(run(*command.split()), "data")
    assert found(places) == before
