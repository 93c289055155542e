import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rioni.storage.embedded.data_directory import DataDirectory, DataDirectoryError


ROOT = Path(__file__).parents[3]
NOBODY = 65_534

HOLD = """
import sys
from pathlib import Path
from rioni.storage.embedded.data_directory import DataDirectory

directory = DataDirectory(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_new_directory_is_created_with_its_parents_and_opened_again(tmp_path: Path):
    path = tmp_path / "a" / "b"
    with DataDirectory(path) as directory:
        assert directory.signals.is_dir()
        assert directory.events.parent == path
    with DataDirectory(path) as directory:
        assert directory.path == path


def test_only_the_owner_has_access_to_the_directory(tmp_path: Path):
    with DataDirectory(tmp_path / "data") as directory:
        assert directory.path.stat().st_mode & 0o077 == 0


def test_a_fresh_file_system_counts_as_empty(tmp_path: Path):
    (tmp_path / "lost+found").mkdir()
    with DataDirectory(tmp_path) as directory:
        assert directory.path == tmp_path
    assert (tmp_path / "format").exists()


def test_a_foreign_directory_is_rejected_and_left_unchanged(tmp_path: Path):
    (tmp_path / "letters.txt").touch()
    with pytest.raises(DataDirectoryError, match=r"letters\.txt.*empty directory"):
        DataDirectory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_an_unknown_format_is_rejected(tmp_path: Path):
    DataDirectory(tmp_path / "data").close()
    (tmp_path / "data" / "format").write_text("rioni data directory, format 2\n")
    with pytest.raises(DataDirectoryError, match=r"format 2.*Use the version"):
        DataDirectory(tmp_path / "data")


def test_a_file_is_rejected(tmp_path: Path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryError, match="not a directory"):
            DataDirectory(path)


def test_an_unwritable_directory_is_rejected():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        with not_as_root(), pytest.raises(DataDirectoryError, match="can't be written"):
            DataDirectory(Path(folder) / "data")


@contextlib.contextmanager
def not_as_root() -> Iterator[None]:
    """Drop the rights of root, who may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_errors_of_the_system_are_explained():
    with pytest.raises(DataDirectoryError, match="Make it writable"):
        DataDirectory(Path("/proc/rioni"))


def test_a_second_broker_is_rejected_with_the_process_id_of_the_first(tmp_path: Path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(DataDirectoryError, match=f"process {first.pid}"):
            DataDirectory(tmp_path / "data")
    DataDirectory(tmp_path / "data").close()


def test_a_killed_broker_leaves_no_lock(tmp_path: Path):
    command = [sys.executable, "-c", HOLD, str(tmp_path / "data")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "locked\n"
        first.kill()
    DataDirectory(tmp_path / "data").close()


def test_a_forked_process_keeps_the_lock_when_its_parent_releases_it(tmp_path: Path):
    directory = DataDirectory(tmp_path / "data")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    directory.close()
    with pytest.raises(DataDirectoryError, match="in use"):
        DataDirectory(tmp_path / "data")
    os.close(writer)
    os.waitpid(pid, 0)
    DataDirectory(tmp_path / "data").close()
