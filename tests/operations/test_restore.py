"""A backup is restored whole or not at all, and newer data are lost only if that was accepted."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from rioni.config.settings import Config
from rioni.domain.errors import RioniError
from rioni.operations.backup import backup
from rioni.operations.restore import restore
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.data_directory import DataDirectoryError
from tests.installation.test_stores import PARTITION, create, publish, running
from tests.operations.test_backup import silent
from tests.support.killing import killed_at_each_step
from tests.support.verification import findings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A backup with the event type `a`, 10 events and a cursor; the data have 10 more, a commit and the type `b`."""
    with running(tmp_path / "data") as base:
        create(base)
        base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
        publish(base)
    backup(Config(data=tmp_path / "data"), tmp_path / "backup", silent)
    with running(tmp_path / "data") as base:
        publish(base)
        base.adapters.coordinator.join("s", "stream")
        base.adapters.coordinator.commit("s", "stream", [(PARTITION, "001-0001-000000000000000009")])
        create(base, "b")
    return tmp_path / "backup"


def state(data: Path) -> tuple[list[str], int]:
    """A broker's view of restored data: its event types, and the last event of `a`."""
    assert findings(data) == []
    with running(data) as base:
        base.registry.refresh()
        names = [each.name for each in base.registry.event_types() if len(each.name) == 1]
        topic = base.registry.timelines("a").active.topic
        return names, base.adapters.stores.of("default").bounds(topic)[0].newest


def test_a_backup_is_restored_into_a_new_directory(folder, tmp_path):
    report = restore(folder, tmp_path / "new", silent)
    assert not report.lost
    assert report.kept_in is None
    assert state(tmp_path / "new") == (["a"], 9)


def test_what_would_be_lost_is_counted_and_refused(folder, tmp_path):
    with pytest.raises(
        RioniError, match=r"lose \d+ entries of the internal log, 10 events, and the commits of 1 cursor"
    ):
        restore(folder, tmp_path / "data", silent)
    assert state(tmp_path / "data") == (["a", "b"], 19)


def test_an_accepted_loss_is_in_the_log_and_no_offset_is_given_twice(folder, tmp_path):
    report = restore(folder, tmp_path / "data", silent, accept_lost_events=True)
    assert report.lost.events == 10
    assert state(tmp_path / "data") == (["a"], 19)
    with contextlib.closing(sqlite3.connect(tmp_path / "data/registry.db")) as connection:
        (recorded,) = connection.execute("SELECT data FROM log WHERE topic = 'settings.loss-accepted'").fetchone()
    assert b"10 events" in recorded
    assert report.kept_in is not None
    assert state(with_format(report.kept_in)) == (["a", "b"], 19)


def with_format(kept: Path) -> Path:
    shutil.copy(kept.parent / "format", kept)
    return kept


def test_the_same_state_can_be_restored_without_loss_and_the_old_files_be_deleted(folder, tmp_path):
    backup(Config(data=tmp_path / "data"), folder, silent)
    (tmp_path / "data" / "events.db").write_bytes(b"damaged")
    with pytest.raises(RioniError, match="an unknown number"):
        restore(folder, tmp_path / "data", silent)
    backup_before = sorted(tmp_path.glob("data/before*"))
    restore(folder, tmp_path / "data", silent, accept_lost_events=True, delete_old=True)
    assert sorted(tmp_path.glob("data/before*")) == backup_before == []
    assert state(tmp_path / "data") == (["a", "b"], 19)


@pytest.mark.parametrize("place", ["data/restore", "data/backup", "data", "."])
def test_a_backup_that_the_data_directory_would_swallow_is_refused_and_stays(folder, tmp_path, place):
    """The folder `restore` of a data directory is that of the restored files, and is emptied first."""
    for path in [*folder.iterdir()]:
        (tmp_path / place).mkdir(exist_ok=True)
        path.replace(tmp_path / place / path.name)
    before = {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")}
    with pytest.raises(RioniError, match="contain one another"):
        restore(tmp_path / place, tmp_path / "data", silent, accept_lost_events=True, delete_old=True)
    assert {path: path.is_dir() or path.read_bytes() for path in tmp_path.rglob("*")} == before


def test_what_does_not_fit_is_refused(folder, tmp_path):
    with running(tmp_path / "other"):
        pass
    with pytest.raises(RioniError, match="another installation"):
        restore(folder, tmp_path / "other", silent)
    with running(tmp_path / "data"), pytest.raises(DataDirectoryError, match="is in use"):
        restore(folder, tmp_path / "data", silent)
    with pytest.raises(RioniError, match="no complete backup"):
        restore(tmp_path / "none", tmp_path / "new", silent)
    content = bytearray((folder / "events.db").read_bytes())
    content[-1] ^= 1
    (folder / "events.db").write_bytes(content)
    with pytest.raises(RioniError, match=r"events\.db is not what was written"):
        restore(folder, tmp_path / "new", silent)


def test_killed_at_any_step_the_data_are_old_or_restored_or_a_start_says_what_to_do(folder, tmp_path):
    old, new = (["a", "b"], 19), (["a"], 19)
    found = []

    def run(data: Path) -> None:
        restore(folder, data, silent, accept_lost_events=True)

    for data in killed_at_each_step(lambda number: shutil.copytree(tmp_path / "data", tmp_path / f"d{number}"), run, 5):
        if (data / "restore.json").exists():
            for use in (running(data), running(data)):
                with pytest.raises(DataDirectoryError, match="`rioni restore` with the same backup again"), use:
                    pass
            with pytest.raises(DataDirectoryError, match="interrupted"):
                findings(data)
            found.append("between")
            run(data)
            assert state(data) == new
        else:
            found.append("old" if state(data) == old else "new")
            assert state(data) in (old, new)
    assert found == sorted(found, key=["old", "between", "new"].index)
    assert set(found) == {"old", "between", "new"}


def test_killed_at_any_step_a_new_directory_is_empty_or_refused_until_a_restore_is_complete(folder, tmp_path):
    """Reference operating/backup#restoring: never an installation, and never a new one."""
    found = []

    def run(data: Path) -> None:
        restore(folder, data, silent)

    for data in killed_at_each_step(lambda number: tmp_path / f"d{number}", run):
        # Before the restore, there is nothing that looks like an installation.
        if not data.exists() or not any(path.name != "lock" for path in data.iterdir()):
            found.append("nothing")
            continue
        if not (data / "format").exists() or (data / "restore.json").exists():
            for use in (running(data), prepare_startup(Config(data=data))):
                with pytest.raises(DataDirectoryError, match="`rioni restore` with the same backup again"), use:
                    pass
            found.append("refused")
            run(data)
        else:
            found.append("complete")
        assert state(data) == (["a"], 9)
        shutil.rmtree(data)
    assert found == sorted(found, key=["nothing", "refused", "complete"].index)
    assert set(found) == {"nothing", "refused", "complete"}


def test_an_interrupted_restore_is_completed_or_replaced_by_another_backup(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "newer")
    backup(Config(data=tmp_path / "data"), tmp_path / "newer", silent)
    steps = killed_at_each_step(lambda number: tmp_path / f"d{number}", lambda data: restore(folder, data, silent), 7)
    for data in steps:
        if (data / "restore.json").exists():
            restore(tmp_path / "newer", data, silent, accept_lost_events=True)
            assert state(data)[0] == ["a", "b"]


def test_a_restore_that_fails_leaves_a_new_directory_as_it_was(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    content = bytearray((folder / "events.db").read_bytes())
    content[-1] ^= 1
    (folder / "events.db").write_bytes(content)
    for data in (tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(RioniError, match=r"events\.db is not what was written"):
            restore(folder, data, silent)
    assert not (tmp_path / "new").exists()
    assert not [*(tmp_path / "empty").iterdir()]


def test_a_restore_whose_copies_are_gone_names_where_the_old_files_are(folder, tmp_path):
    for data in killed_at_each_step(
        lambda number: shutil.copytree(tmp_path / "data", tmp_path / f"d{number}"),
        lambda data: restore(folder, data, silent, accept_lost_events=True),
    ):
        if (data / "restore.json").exists():
            shutil.rmtree(data / "restore")
            with pytest.raises(RioniError, match=r"The old files are in .*before-restore-"):
                restore(folder, data, silent)
            return
    pytest.fail("no restore was interrupted")
