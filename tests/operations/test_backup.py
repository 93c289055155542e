"""Backups are consistent, checked and incremental; interrupted at any step, one of two backups is complete."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from rioni.config.settings import Config
from rioni.domain.errors import RioniError
from rioni.operations.backup import backup
from rioni.storage.embedded import backup_folder
from rioni.storage.embedded.backup_folder import read_manifest
from tests.installation.test_stores import PARTITION, create, publish, running
from tests.storage.embedded.events.test_event_store_faults import file_size_limit
from tests.support.killing import killed_at_each_step
from tests.support.verification import findings


def silent(_phase: str, _done: int, _total: int) -> None:
    pass


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data directory of a broker with 10 events and a cursor, which is not running."""
    with running(tmp_path / "data") as base:
        create(base)
        base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
        publish(base)
    return tmp_path / "data"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "backup.json"}


def assert_complete(folder: Path) -> int:
    """Check that a folder is a backup, after what a restore would do first; return its position."""
    backup_folder.recover(folder)
    manifest = read_manifest(folder)
    assert manifest is not None
    assert {name: backup_folder.describe(folder / name) for name in manifest.files} == manifest.files
    assert findings(folder) == []
    return manifest.position


def test_a_backup_of_a_running_broker_is_a_data_directory_without_findings(data, tmp_path):
    with running(data) as base:
        publish(base)
        phases = set()
        report = backup(Config(data=data), tmp_path / "to", lambda phase, *_: phases.add(phase))
        publish(base)
    assert not report.incremental
    assert phases == {"copy", "log", "tree", "read models", "events", "checksums"}
    assert assert_complete(tmp_path / "to") == report.manifest.position > 0
    with running(shutil.copytree(tmp_path / "to", tmp_path / "started")) as base:
        topic = base.registry.timelines("a").active.topic
        assert base.adapters.stores.of("default").bounds(topic)[0] == (0, 19)


def test_an_incremental_backup_equals_a_full_one_and_writes_what_has_changed(data, tmp_path):
    with running(data) as base:
        for _ in range(200):
            publish(base)
    first = backup(Config(data=data), tmp_path / "to", silent)
    with running(data) as base:
        create(base, "b")
        publish(base, "b")
        base.adapters.stores.of("default").delete_topic(base.registry.timelines("a").active.topic)
    report = backup(Config(data=data), tmp_path / "to", silent, checked=False)
    backup(Config(data=data), tmp_path / "full", silent, checked=False)
    assert report.incremental
    assert report.manifest.position > first.manifest.position
    assert contents(tmp_path / "to") == contents(tmp_path / "full")
    assert backup(Config(data=data), tmp_path / "to", silent, checked=False).written == 0


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("data/inside", "contain one another"),
        (".", "contain one another"),
        ("full", "neither empty nor a backup"),
        ("other", "of another installation"),
        ("file", "can't be used"),
    ],
)
def test_a_folder_that_is_no_place_for_the_backup_is_refused(data, tmp_path, to, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "holiday.jpg").touch()
    (tmp_path / "file").touch()
    with running(tmp_path / "stranger"):
        pass
    backup(Config(data=tmp_path / "stranger"), tmp_path / "other", silent)
    with pytest.raises(RioniError, match=message):
        backup(Config(data=data), tmp_path / to, silent)


def test_too_little_space_and_a_cluster_are_refused(data, tmp_path, monkeypatch):
    with pytest.raises(RioniError, match="pg_dump"):
        backup(Config(data=data, database="postgresql://localhost/x"), tmp_path / "to", silent)
    monkeypatch.setattr("rioni.operations.backup.SPARE_BYTES", 2**60)
    with pytest.raises(RioniError, match="Free space"):
        backup(Config(data=data), tmp_path / "to", silent)


def test_data_on_a_full_disk_are_not_called_damaged(data, tmp_path):
    with file_size_limit(0), pytest.raises(RioniError, match=r"registry\.db can't be read: .*\. Check disk space and"):
        backup(Config(data=data), tmp_path / "to", silent)
    backup(Config(data=data), tmp_path / "to", silent)
    assert_complete(tmp_path / "to")


def test_damaged_data_do_not_replace_the_backup_before(data, tmp_path):
    first = backup(Config(data=data), tmp_path / "to", silent)
    with contextlib.closing(sqlite3.connect(data / "events.db")) as connection, connection:
        connection.execute("UPDATE chunks SET count = count + 1")
    with pytest.raises(RioniError, match="does not replace"):
        backup(Config(data=data), tmp_path / "to", silent)
    assert read_manifest(tmp_path / "to") == first.manifest
    assert_complete(tmp_path / "to")


def test_killed_at_any_step_the_folder_holds_the_backup_before_or_the_new_one(data, tmp_path):
    before = backup(Config(data=data), tmp_path / "before", silent).manifest.position
    with running(data) as base:
        create(base, "b")
        publish(base, "b")
    positions = []

    def run(folder: Path) -> None:
        backup(Config(data=data), folder, silent, checked=False)

    def prepare(number: int) -> Path:
        return shutil.copytree(tmp_path / "before", tmp_path / f"to{number}")

    for folder in killed_at_each_step(prepare, run):
        positions.append(assert_complete(folder))
        run(folder)
        assert assert_complete(folder) > before
    assert positions == sorted(positions), "the new one from one step on"
    assert positions[0] == before < positions[-1]


def test_a_first_backup_that_was_killed_is_none_and_can_be_repeated(data, tmp_path):
    def run(folder: Path) -> None:
        backup(Config(data=data), folder, silent, checked=False)

    for folder in killed_at_each_step(lambda number: tmp_path / f"to{number}", run, every=3):
        if folder.exists() and read_manifest(folder) is None:
            run(folder)
        elif folder.exists():
            assert_complete(folder)
