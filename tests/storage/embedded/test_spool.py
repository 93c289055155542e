"""Spools: files of lines that survive their process, and belong to one process at a time."""

import os
import subprocess
import sys

import pytest

from rioni.storage.embedded import spool as module
from rioni.storage.embedded.spool import FileSpool


@pytest.fixture
def spool(tmp_path):
    spool = FileSpool(tmp_path / "spools", "requests")
    yield spool
    spool.close()


def lines(files):
    return [line for file in files for line in file.lines()]


def test_without_lines_there_is_no_file(spool, tmp_path):
    assert list(spool.finished(current=True)) == []
    assert list((tmp_path / "spools").iterdir()) == []


def test_lines_are_read_in_order_until_they_are_removed(spool, tmp_path):
    for line in (b"1\n", b"2\n"):
        assert spool.append(line)
    assert lines(spool.finished(current=True)) == [b"1", b"2"]
    assert spool.append(b"3\n")
    first, second = spool.finished(current=True)
    assert first.id != second.id
    first.remove()
    assert lines(spool.finished(current=True)) == [b"3"]
    second.remove()
    assert list(spool.finished(current=True)) == []
    assert list((tmp_path / "spools").iterdir()) == []


def test_reading_can_exclude_the_file_being_written(spool):
    spool.append(b"1\n")
    assert list(spool.finished(current=False)) == []


def test_the_spool_of_a_live_process_is_not_taken_over(spool, tmp_path):
    other = FileSpool(tmp_path / "spools", "requests")
    spool.append(b"1\n")
    assert list(other.finished(current=True)) == []
    spool.finished(current=True)
    assert list(other.finished(current=True)) == []
    spool.close()
    assert lines(other.finished(current=True)) == [b"1"]
    other.close()


def test_a_spool_takes_over_only_files_of_its_own_kind(spool, tmp_path):
    other = FileSpool(tmp_path / "spools", "streams")
    other.append(b"1\n")
    other.close()
    assert list(spool.finished(current=True)) == []


DYING = """
import os, signal, sys
from pathlib import Path
from rioni.storage.embedded.spool import FileSpool
spool = FileSpool(Path(sys.argv[1]), "requests")
for number in range(100):
    assert spool.append(b"%d\\n" % number)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_spool_of_a_killed_process_is_taken_over_by_exactly_one_other(spool, tmp_path):
    directory = tmp_path / "spools"
    subprocess.run([sys.executable, "-c", DYING, str(directory)], check=False)
    other = FileSpool(directory, "requests")
    assert lines(spool.finished(current=True)) == [b"%d" % number for number in range(100)]
    assert list(other.finished(current=True)) == []
    for file in spool.finished(current=True):
        file.remove()
    assert list(other.finished(current=True)) == []


def test_a_file_just_removed_by_another_process_is_not_taken_over(tmp_path):
    spool = FileSpool(tmp_path / "spools", "requests")
    spool.append(b"1\n")
    (file,) = spool.finished(current=True)
    fd = os.open(file.path, os.O_RDWR)
    file.remove()
    assert module.LockedFile.take_over(file.path) is None
    os.close(fd)


def test_files_are_of_limited_size_and_number(tmp_path):
    spool = FileSpool(tmp_path / "spools", "requests", file_bytes_max=10)
    kept = sum(spool.append(b"12345\n") for _ in range(module.FILES_MAX + 10))
    assert kept == module.FILES_MAX
    files = spool.finished(current=True)
    assert [file.size for file in files] == [6] * module.FILES_MAX
    files[0].remove()
    assert not spool.append(b"12345\n")
    spool.finished(current=False)
    assert spool.append(b"12345\n")
    spool.close()


def test_a_line_that_can_not_be_written_is_rejected(tmp_path):
    spool = FileSpool(tmp_path / "spools", "requests")
    (tmp_path / "spools").rmdir()
    assert not spool.append(b"1\n")
