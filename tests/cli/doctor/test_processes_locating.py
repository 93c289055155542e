import os
from pathlib import Path

import pytest

from rioni.cli.doctor import processes
from rioni.cli.doctor.processes import locate, lock_holder
from rioni.files.locks import lock


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "format").write_text("rioni data directory, format 1\n")
    (folder / "lock").write_text("")
    return folder


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A directory used instead of /proc."""
    folder = tmp_path / "proc"
    folder.mkdir()
    monkeypatch.setattr(processes, "PROC", folder)
    return folder


@pytest.fixture
def process(proc, data, tmp_path):
    """Makes a process 4711 that holds the lock of the data directory."""

    def make(*words, **environ):
        folder = proc / "4711"
        folder.mkdir()
        (folder / "cmdline").write_bytes("\0".join(["python", "-m", "rioni", *words, ""]).encode())
        (folder / "environ").write_bytes("".join(f"{name}={value}\0" for name, value in environ.items()).encode())
        (folder / "cwd").symlink_to(tmp_path)
        (data / "lock").write_text("4711\n")
        inode = (data / "lock").stat().st_ino
        (proc / "locks").write_text(f"1: FLOCK  ADVISORY  WRITE 4711 fe:00:{inode} 0 EOF\n")

    return make


def test_the_holder_of_a_lock_is_found(tmp_path):
    path = tmp_path / "lock"
    assert lock_holder(path) is None
    path.write_text(f"{os.getpid()}\n")
    assert lock_holder(path) is None
    with path.open() as file:
        lock(file.fileno())
        assert lock_holder(path) == os.getpid()


def test_without_a_list_of_locks_the_process_counts_whose_id_is_in_the_file(proc, data):
    (data / "lock").write_text("4711\n")
    assert lock_holder(data / "lock") is None
    (proc / "4711").mkdir()
    assert lock_holder(data / "lock") == 4711


def test_a_machine_without_a_data_directory_is_no_host(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate(None, None, {}) is None


def test_a_named_data_directory_makes_a_host_even_if_it_is_missing(tmp_path):
    host = locate(tmp_path / "absent", None, {})
    assert (host.data, host.pid, host.origin) == (tmp_path / "absent", None, "environment")


def test_a_data_directory_of_the_environment_makes_a_host(data):
    host = locate(None, None, {"RIONI_DATA": str(data)})
    assert host.data == data
    assert host.sources["data"] == "environment"


def test_settings_are_those_that_the_process_was_started_with(data, process, tmp_path, monkeypatch):
    (tmp_path / "broker.toml").write_text("workers = 3\n")
    process(
        "serve",
        "--port",
        "8090",
        "--host=::1",
        "--config",
        "broker.toml",
        "--allow-unauthenticated",
        RIONI_AUTH_TOKENS="t.toml",
    )
    monkeypatch.chdir(data)
    host = locate(data, None, {"RIONI_PORT": "1"})
    assert (host.pid, host.origin) == (4711, "process 4711")
    assert (host.config.port, host.config.host, host.config.workers) == (8090, "::1", 3)
    assert host.config.allow_unauthenticated
    assert host.config.auth_tokens == tmp_path / "t.toml"
    assert host.sources["port"] == "command line"
    assert host.sources["workers"] == str(tmp_path / "broker.toml")


def test_the_settings_of_the_working_directory_are_not_those_of_the_process(data, process, tmp_path, monkeypatch):
    process("serve")
    (data / "rioni.toml").write_text("port = 1\n")
    monkeypatch.chdir(data)
    assert locate(data, None, {}).config.port == 8080
    (tmp_path / "rioni.toml").write_text("port = 2\n")
    assert locate(data, None, {}).config.port == 2


def test_a_process_that_may_not_be_seen_has_the_settings_of_the_environment(data, process, proc):
    process("serve", RIONI_PORT="2")
    (proc / "4711" / "environ").unlink()
    host = locate(data, None, {"RIONI_PORT": "1"})
    assert (host.pid, host.config.port, host.origin) == (4711, 1, "environment")


def test_settings_that_are_wrong_are_an_error_of_the_host(data, tmp_path):
    file = tmp_path / "bad.toml"
    file.write_text("port = 'x'\n")
    host = locate(data, file, {})
    assert host.config is None
    assert "port must be a whole number" in host.error
    assert host.data == data


def test_paths_of_settings_are_absolute(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        locate(data, None, {"RIONI_TLS_KEY": "key.pem", "RIONI_TLS_CERTIFICATE": "c.pem"}).config.tls_key
        == tmp_path / "key.pem"
    )


def test_nothing_is_created_or_changed(data):
    def state():
        return {path: path.stat().st_mtime_ns for path in Path(data).rglob("*")}

    before = state()
    assert locate(data, None, {}) is not None
    assert state() == before
