"""Reading files never waits for nobody, whatever is in their place."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rioni.domain.errors import Unavailable
from rioni.files.plain import check_folder, read_file, read_with_mode


def make_pipe(path):
    os.mkfifo(path)


def make_socket(path):
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{folder}/{path.name}")  # paths of sockets are short
    os.close(folder)


def make_device(path):
    path.symlink_to("/dev/zero")


def make_dangling_link(path):
    path.symlink_to("/absent/file")


OPEN = Path("/proc/self/fd")
KINDS = {"pipe": make_pipe, "socket": make_socket, "device": make_device, "link": make_dangling_link}

pytestmark = pytest.mark.timeout(30)


@pytest.mark.parametrize("kind", [*KINDS, "folder"])
def test_what_is_no_file_is_an_error_at_once(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "folder":
        path.mkdir()
    else:
        KINDS[kind](path)
    with pytest.raises(OSError, match=r".") as caught:
        read_file(path)
    assert caught.value.strerror
    assert path.resolve() not in _open_files()


def _open_files():
    found = set()
    for each in OPEN.iterdir():
        with contextlib.suppress(OSError):  # of another thread, and closed meanwhile
            found.add(each.readlink())
    return found


@pytest.mark.parametrize("content", [b"", b"a", b"a" * 100_000])
def test_files_and_links_to_files_are_read(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    assert read_file(tmp_path / "link") == content
    assert read_with_mode(path)[1] & 0o777 == 0o640


def test_the_null_device_is_an_empty_file():
    assert read_file("/dev/null") == b""


@pytest.mark.parametrize("content", [b"a", b"a" * 100_000])
def test_a_pipe_is_read_as_long_as_a_program_writes_to_it(tmp_path, content):
    path = tmp_path / "x"
    os.mkfifo(path)
    # An end that reads lets the writer open the pipe at once.
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)

    def write():
        with open(writing, "wb") as file:  # noqa: PTH123 - of a descriptor
            file.write(content)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_file(path) == content
    writer.join()
    os.close(reading)


def test_the_output_of_a_program_is_read_where_a_shell_names_it():
    program = "import sys; from rioni.files.plain import read_file; print(read_file(sys.argv[1]))"
    command = f"'{sys.executable}' -c '{program}' <(sleep 0.2; echo done)"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout == "b'done\\n'\n"


REASONS = {"pipe": "is a pipe", "socket": "is a socket", "device": "is a device", "link": "is a link to /absent/file"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_with_something_that_is_no_file_is_refused(tmp_path, kind):
    (tmp_path / "registry.db").write_text("")
    (tmp_path / "scratch").mkdir()
    check_folder(tmp_path)
    KINDS[kind](tmp_path / "events.db")
    with pytest.raises(Unavailable, match=rf"/events\.db {REASONS[kind]}"):
        check_folder(tmp_path)


def test_a_folder_that_does_not_exist_is_for_others_to_refuse(tmp_path):
    check_folder(tmp_path / "absent")
