"""A backup is untrusted data: its names, links, lengths and digests lead nowhere but to its own files."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rioni.config.settings import Config
from rioni.operations.backup import backup
from rioni.operations.restore import restore
from rioni.storage.embedded import backup_folder
from rioni.storage.embedded.backup_folder import BackupError
from tests.installation.test_stores import create, publish, running
from tests.operations.test_backup import silent


SECRET = b"not of a backup\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of a small broker, and a backup of it; all tests copy it.

    PERF: making it takes four fifths of the time of a test.
    """
    made = tmp_path_factory.mktemp("made")
    with running(made / "data") as base:
        create(base)
        publish(base)
    backup(Config(data=made / "data"), made / "backup", silent)
    (made / "victim").mkdir()
    for name in ("file", "events.db", "backup.json"):
        (made / "victim" / name).write_bytes(SECRET)
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A backup of a small broker; next to it `victim`, which must not change, with a broker's file names in it."""
    shutil.copytree(made, tmp_path, symlinks=True, dirs_exist_ok=True)
    return tmp_path / "backup"


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
    }


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / "backup.json").read_bytes())
    change(manifest)
    (folder / "backup.json").write_text(json.dumps(manifest))


def listing(name: str, **entry: object) -> Callable[[Path], None]:
    """A forgery: the manifest lists one more file."""
    members = {"size": len(SECRET), "sha256": "0" * 64} | entry
    return lambda folder: change_manifest(folder, lambda manifest: manifest["files"].update({name: members}))


def member(name: str, value: object) -> Callable[[Path], None]:
    return lambda folder: change_manifest(folder, lambda manifest: manifest.update({name: value}))


def entry(name: str, value: object) -> Callable[[Path], None]:
    return lambda folder: change_manifest(folder, lambda manifest: manifest["files"]["events.db"].update({name: value}))


def twice(folder: Path) -> None:
    text = (folder / "backup.json").read_text()
    (folder / "backup.json").write_text(text.replace('"files": {', '"files": {"format": {"size": 1, "sha256": ""},'))


def replaced(name: str, make: Callable[[Path, Path], object]) -> Callable[[Path], None]:
    """A forgery: a file of the backup is something else, made by `make(path, victim)`."""

    def forge(folder: Path) -> None:
        shutil.move(folder / name, folder.parent / "moved")
        make(folder / name, folder.parent / "victim" / "file")

    return forge


def linked_copy(path: Path, _victim: Path) -> None:
    """A symbolic link to just the content that belongs there, so that length and digest are right."""
    path.symlink_to(path.parent.parent / "moved")


NAMES = (
    "/etc/passwd",
    "../victim/file",
    "../../x",
    "victim/../file",
    "./events.db",
    "a/b.db",
    "",
    ".",
    "..",
    "events.db\n",
    "events\x00.db",
    "EVENTS.db",
    "events-a/b.db",
    "events-" + "x" * 37 + ".db",
    "registry.db-wal",
    "restore.json",
    "log-signing.key",
    "lock",
    "signals",
    "evil.db",
    "\x1b[2Jevents.db",
    "events-\u202e.db",
)
FORGERIES: dict[str, Callable[[Path], None]] = {
    **{f"name {name!a}": listing(name) for name in NAMES},
    "negative size": entry("size", -1),
    "huge size": entry("size", 2**62),
    "more than 64 bits": entry("size", 2**70),
    "size is text": entry("size", "7"),
    "wrong size": entry("size", 7),
    "wrong digest": entry("sha256", "0" * 64),
    "digest is a path": entry("sha256", "../../x"),
    "twice": twice,
    "format of later": member("format", 2),
    "id with a path": member("id", "../x"),
    "hash is none": member("hash", "zz"),
    "time with controls": member("taken_at", "\x1b[31mnow"),
    "installation with controls": member("installation", "\x9b31m"),
    "files are a list": member("files", []),
    "no registry": lambda folder: change_manifest(folder, lambda manifest: manifest["files"].pop("registry.db")),
    "no format": lambda folder: change_manifest(folder, lambda manifest: manifest["files"].pop("format")),
    "no object": lambda folder: (folder / "backup.json").write_text("[]"),
    "empty": lambda folder: (folder / "backup.json").write_text(""),
    "not UTF-8": lambda folder: (folder / "backup.json").write_bytes(b'{"\xff": 1}'),
    "endless": lambda folder: os.truncate(folder / "backup.json", 2**30),
    "nested": lambda folder: (folder / "backup.json").write_text("[" * 100_000),
    "manifest is a link": replaced("backup.json", linked_copy),
    "manifest is a directory": replaced("backup.json", lambda path, _: path.mkdir()),
    "manifest is a pipe": replaced("backup.json", lambda path, _: os.mkfifo(path)),
    "a link to the content": replaced("events.db", linked_copy),
    "a link to another file": replaced("events.db", lambda path, victim: path.symlink_to(victim)),
    "a dangling link": replaced("events.db", lambda path, _: path.symlink_to("nowhere")),
    "another file's hard link": replaced("events.db", lambda path, victim: path.hardlink_to(victim)),
    "a directory": replaced("events.db", lambda path, _: path.mkdir()),
    "a pipe": replaced("events.db", lambda path, _: os.mkfifo(path)),
    "a socket": replaced("events.db", lambda path, _: os.mknod(path, stat.S_IFSOCK)),
    "a device": replaced("events.db", lambda path, _: path.symlink_to("/dev/zero")),
    "missing": lambda folder: (folder / "events.db").unlink(),
    "longer": lambda folder: os.truncate(folder / "events.db", (folder / "events.db").stat().st_size + 1),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_backup_is_refused_and_nothing_is_written(folder, tmp_path, forgery):
    FORGERIES[forgery](folder)
    before = snapshot(tmp_path / "data")
    for data in (tmp_path / "new", tmp_path / "data"):
        with pytest.raises(BackupError) as refused:
            restore(folder, data, silent, accept_lost_events=True)
        assert str(refused.value).isprintable()
        assert "Use another" in str(refused.value) or "no complete backup" in str(refused.value) or "Use the version"
    assert not (tmp_path / "new").exists()
    assert before.items() <= snapshot(tmp_path / "data").items()
    assert not (tmp_path / "data/restore").exists()
    assert not (tmp_path / "data/restore.json").exists()
    assert set(snapshot(tmp_path / "victim").values()) == {SECRET}


LINKS: dict[str, Callable[[Path, Path], object]] = {
    "symbolic": lambda path, victim: path.symlink_to(victim),
    "hard": lambda path, victim: path.hardlink_to(victim),
    "dangling": lambda path, victim: path.symlink_to(victim.with_name("made")),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize(
    "name", ["events.db", "registry.db", "format", "backup.json", "backup.json.new", "backup.unfinished", "undo"]
)
def test_an_update_of_a_backup_writes_to_no_file_behind_a_link(folder, tmp_path, name, kind):
    (folder / name).unlink(missing_ok=True)
    LINKS[kind](folder / name, tmp_path / "victim" / "file")
    with running(tmp_path / "data") as base:
        publish(base)
    try:
        backup(Config(data=tmp_path / "data"), folder, silent)
    except BackupError as ex:
        assert "Nothing was changed" in str(ex) or "Use another" in str(ex) or "can't be used" in str(ex)  # noqa: PT017
    assert set(snapshot(tmp_path / "victim").values()) == {SECRET}


def interrupted(folder: Path, sizes: dict[str, object], saved: bytes = b"") -> None:
    """Make a backup look as if an update of it had been interrupted."""
    manifest = backup_folder.read_manifest(folder)
    assert manifest is not None
    (folder / "undo").mkdir()
    (folder / "undo" / "backup.json").write_text(json.dumps({"manifest_id": manifest.id, "sizes": sizes}))
    (folder / "undo" / "events.db").write_bytes(saved)


HEADER = backup_folder._HEADER


@pytest.mark.parametrize(
    ("sizes", "saved"),
    [
        ({"../victim/file": None}, b""),
        ({"../victim/file": 0}, b""),
        ({"/etc/passwd": None}, b""),
        ({"format": None, "../victim/file": None}, b""),
        ({"events.db": 2**62}, b""),
        ({"events.db": -1}, b""),
        ({"events.db": 8192}, HEADER.pack(-8, 4) + b"1234"),
        ({"events.db": 8192}, HEADER.pack(0, 2**40) + b"1234"),
        ({"events.db": 8192}, HEADER.pack(0, -1) + b"1234"),
        ({"events.db": 8192}, HEADER.pack(2**50, 4) + b"1234"),
        ({"events.db": 8192}, HEADER.pack(0, 8) + b"1234"),
        ({"events.db": 8192}, b"short"),
        ({"format": None, "names.db": 7}, b""),
    ],
)
@pytest.mark.parametrize("command", ["restore", "backup"])
def test_a_forged_interruption_changes_and_deletes_nothing(folder, tmp_path, sizes, saved, command):
    interrupted(folder, sizes, saved)
    before = snapshot(folder)
    run = {
        "backup": lambda: backup(Config(data=tmp_path / "data"), folder, silent),
        "restore": lambda: restore(folder, tmp_path / "new", silent),
    }[command]
    with pytest.raises(BackupError):
        run()
    assert snapshot(folder) == before
    assert set(snapshot(tmp_path / "victim").values()) == {SECRET}


def test_a_copy_with_hard_links_is_restored_and_not_written_to(folder, tmp_path):
    """Generations of backups have such links, if `cp -al` makes them."""
    shutil.copytree(folder, tmp_path / "generation", copy_function=os.link)
    restore(tmp_path / "generation", tmp_path / "new", silent)
    with running(tmp_path / "data") as base:
        publish(base)
    before = snapshot(folder)
    with pytest.raises(BackupError, match="hard link"):
        backup(Config(data=tmp_path / "data"), tmp_path / "generation", silent)
    assert snapshot(folder) == before
