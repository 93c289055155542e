"""A store that was replaced by an older or a foreign one, or is missing, is found at start and by `rioni verify`."""

import contextlib
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.system.storages import SwitchFeature
from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.system.anchors import DataMismatch
from rioni.domain.system.settings import LossAccepted
from rioni.domain.timelines.position import EventTypePartition
from rioni.installation.acceptance import accept_loss
from rioni.installation.anchoring import StoreMarks
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.data_directory import DataDirectoryError
from tests.support.builders import event_type_spec
from tests.support.verification import findings


EVENTS = [b'{"number":%d}' % number for number in range(10)]
PARTITION = EventTypePartition("a", "0")
FILES = ("registry.db", "events.db", "coordination.db")


@contextlib.contextmanager
def running(data: Path, *, marked: bool = True):
    """A broker without HTTP, which records its high-water marks when it stops, unless it is killed."""
    config = Config(data=data)
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        yield base
        if marked:
            StoreMarks(base).note(everything=True)


def publish(base, name: str = "a") -> None:
    base.registry.refresh()
    timeline = base.registry.timelines(name).active
    base.adapters.stores.of("default").append(timeline.topic, {0: EVENTS})


def create(base, name: str = "a") -> None:
    base.bus.dispatch(CreateEventType(spec=event_type_spec(name=name)), base.system_context())


def copy(data: Path, backup: Path) -> Path:
    """Copy the files of a stopped broker."""
    backup.mkdir()
    for name in FILES:
        for path in data.glob(f"{name}*"):
            if path.is_file() and not path.name.endswith("-lock"):
                shutil.copyfile(path, backup / path.name)
    return backup


def put_back(backup: Path, data: Path, *names: str) -> None:
    for name in names:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{data / name}{suffix}").unlink(missing_ok=True)
            if (path := Path(f"{backup / name}{suffix}")).exists():
                shutil.copyfile(path, data / path.name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def backup(data: Path, tmp_path: Path) -> Path:
    """A copy of a broker with 10 events; the broker published 10 more afterwards, and was stopped."""
    with running(data) as base:
        create(base)
        base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
        publish(base)
    backup = copy(data, tmp_path / "backup")
    with running(data) as base:
        base.bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=True), base.system_context())
        base.adapters.coordinator.join("s", "stream")
        base.adapters.coordinator.commit("s", "stream", [(PARTITION, "001-0001-000000000000000009")])
        publish(base)
    return backup


def refusal(data: Path) -> str:
    """The error of a rejected start; `verify` finds the same, and neither has changed anything."""
    before = {name: (data / name).read_bytes() for name in FILES if (data / name).exists()}
    with pytest.raises(DataMismatch) as refused, running(data):
        pass
    assert {name: (data / name).read_bytes() for name in before} == before
    found = findings(data)
    assert set(refused.value.findings) <= set(found)
    assert "accept-loss" in str(refused.value)
    return str(refused.value)


def test_stores_that_belong_together_are_accepted(data, backup):
    assert findings(data) == []
    with running(data) as base:
        publish(base)
    put_back(backup, data, *FILES)
    assert findings(data) == []
    with running(data) as base:
        publish(base)


def test_older_events_are_rejected(data, backup):
    put_back(backup, data, "events.db")
    assert "events.db is older than the registry: 1 partition" in refusal(data)
    assert "a, partition 0, at 9 instead of 19" in refusal(data)


def test_missing_events_are_rejected(data, backup):
    (data / "events.db").unlink()
    assert "events.db is missing. It has to hold 1 topic." in refusal(data)


def test_an_empty_file_of_events_is_rejected(data, backup, tmp_path):
    with running(tmp_path / "other") as base:
        base.adapters.stores.of("default").topics()
    with contextlib.closing(sqlite3.connect(tmp_path / "other/events.db")) as connection, connection:
        connection.execute("DELETE FROM anchor")
    put_back(tmp_path / "other", data, "events.db")
    assert "events.db lacks the topics of 1 event type: a" in refusal(data)


def test_an_older_registry_is_rejected(data, backup):
    put_back(backup, data, "registry.db")
    text = refusal(data)
    assert re.search(r"The registry is older than events\.db: its log ends at position \d+, and events\.db was", text)
    assert "The registry is older than coordination.db" in text


def test_a_registry_with_another_history_is_rejected(data, backup):
    put_back(backup, data, "registry.db")
    events = copy(data, data.parent / "newer")
    put_back(backup, data, *FILES)
    with running(data) as base:
        for enabled in (True, False, True):
            base.bus.dispatch(SwitchFeature(feature="access_log_enabled", enabled=enabled), base.system_context())
    put_back(events, data, "events.db", "coordination.db")
    assert "The registry has another history than events.db: the entry at position " in refusal(data)


def test_a_missing_registry_is_rejected(data, backup):
    (data / "registry.db").unlink()
    with pytest.raises(DataMismatch, match=r"registry\.db is missing"), running(data):
        pass
    assert not (data / "registry.db").exists()


def test_older_cursors_are_rejected(data, backup):
    put_back(backup, data, "coordination.db")
    assert "coordination.db is older than the registry" in refusal(data)


def test_missing_cursors_are_rejected(data, backup):
    (data / "coordination.db").unlink()
    assert "coordination.db is missing" in refusal(data)


@pytest.mark.parametrize("name", ["events.db", "coordination.db"])
def test_files_of_another_installation_are_rejected(data, backup, tmp_path, name):
    with running(tmp_path / "other") as base:
        create(base)
        publish(base)
    put_back(tmp_path / "other", data, name)
    assert f"{name} belongs to another installation" in refusal(data)


def test_a_killed_broker_can_be_started_again(data):
    with running(data, marked=False) as base:
        create(base)
        publish(base)
    with running(data, marked=False) as base:
        publish(base)
    assert findings(data) == []
    with running(data) as base:
        publish(base)
    with running(data, marked=False) as base:
        create(base, "b")
        publish(base, "b")
    assert findings(data) == []
    with running(data):
        pass


def test_the_marks_of_deleted_topics_are_deleted(data):
    with running(data) as base:
        create(base)
        publish(base)
        marks = StoreMarks(base)
        marks.note(everything=True)
        assert [name for name in marks._read() if name.startswith("topic:")]
        base.bus.dispatch(DeleteEventType(name="a"), base.system_context())
        marks.note(everything=True)
        assert not [name for name in marks._read() if name.startswith("topic:")]


def test_publishing_costs_one_row_for_each_topic_that_has_grown(data):
    with running(data) as base:
        create(base)
        create(base, "b")
        publish(base, "b")
        marks = StoreMarks(base)
        marks.note(everything=True)
        publish(base)
        before = marks._read()
        marks.note(everything=False)
        after = marks._read()
        topic = base.registry.timelines("a").active.topic
        assert {name for name in after if before.get(name) != after[name]} <= {f"topic:{topic}", "coordination"}
        assert after[f"topic:{topic}"].startswith("[10")


def test_verify_names_cursors_beyond_the_last_event_and_the_broker_starts(data):
    with running(data) as base:
        create(base)
        publish(base)
        coordinator = base.adapters.coordinator
        coordinator.initialise("s", {PARTITION: "001-0001--1"})
        coordinator.join("s", "stream")
        coordinator.commit("s", "stream", [(PARTITION, "001-0001-000000000000000010")])
    (found,) = findings(data)
    assert found.startswith("subscription s: The committed cursor 001-0001-000000000000000010 of event type a, part")
    with running(data) as base:
        publish(base)
    assert findings(data) == []


# --- continuing after an accepted loss ---


def read_numbers(base, first: int) -> list[bytes]:
    topic = base.registry.timelines("a").active.topic
    chunks = base.adapters.stores.of("default").read(topic, 0, first, 10**6)
    found = []
    for chunk in chunks:
        found += [chunk.cut(place, place + 1) for place in range(max(first, chunk.first), chunk.next)]
    return found


@pytest.mark.parametrize("lost", [*FILES, "events.db, missing", "coordination.db, missing", "registry.db, missing"])
def test_an_accepted_loss_is_recorded_and_the_stores_belong_together_again(data, backup, lost):
    name, _, missing = lost.partition(", ")
    if missing:
        (data / name).unlink()
    else:
        put_back(backup, data, name)
    found = accept_loss(Config(data=data), "the disk died")
    assert found
    assert accept_loss(Config(data=data), "again") == []
    assert findings(data) == []
    with running(data) as base:
        events = [entry.event for entry in base.log.entries(0, 100)]
        (accepted,) = [event for event in events if isinstance(event, LossAccepted)]
        assert accepted == LossAccepted(findings=tuple(found), reason="the disk died")
    assert findings(data) == []


def test_no_offset_is_used_twice(data, backup):
    put_back(backup, data, "events.db")
    accept_loss(Config(data=data), "x")
    with running(data) as base:
        topic = base.registry.timelines("a").active.topic
        store = base.adapters.stores.of("default")
        assert store.bounds(topic)[0] == (0, 19)
        publish(base)
        assert read_numbers(base, 0) == EVENTS + [b""] * 10 + EVENTS
    assert findings(data) == []


def test_a_missing_file_is_recreated_behind_the_last_offset(data, backup):
    (data / "events.db").unlink()
    accept_loss(Config(data=data), "x")
    with running(data) as base:
        topic = base.registry.timelines("a").active.topic
        assert base.adapters.stores.of("default").bounds(topic)[0] == (20, 19)
        publish(base)
        assert read_numbers(base, 0) == EVENTS


def test_cursors_ahead_of_the_marks_count_unless_a_client_invented_them(data, tmp_path):
    with running(data, marked=False) as base:
        create(base)
        StoreMarks(base).note(everything=True)
        publish(base)
        coordinator = base.adapters.coordinator
        for subscription, position in (("s", 9), ("made-up", 10**15)):
            coordinator.initialise(subscription, {PARTITION: "001-0001--1"})
            coordinator.join(subscription, f"stream-{subscription}")
            coordinator.commit(subscription, f"stream-{subscription}", [(PARTITION, f"001-0001-{position:018d}")])
    for path in data.glob("events.db*"):
        path.unlink()
    accept_loss(Config(data=data), "x")
    with running(data) as base:
        topic = base.registry.timelines("a").active.topic
        assert base.adapters.stores.of("default").bounds(topic)[0] == (10, 9)


def test_nothing_is_accepted_while_the_broker_runs(data, backup):
    with running(data), pytest.raises(DataDirectoryError, match="is in use"):
        accept_loss(Config(data=data), "x")


# --- `verify` changes nothing ---


def test_verify_does_not_change_a_copy_nor_its_directory(data, backup):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in backup.iterdir()}
    assert findings(backup) == []
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in backup.iterdir()} == before


def test_verify_needs_no_writable_directory(data, backup):
    """Root may write everywhere; for root the test above shows that nothing is written."""
    backup.chmod(0o500)
    try:
        assert findings(backup) == []
    finally:
        backup.chmod(0o700)


def test_verify_reads_what_a_running_broker_has_written_last(data):
    with running(data) as base:
        create(base)
        publish(base)
        with contextlib.closing(sqlite3.connect(data / "events.db")) as connection, connection:
            connection.execute("UPDATE chunks SET count = count + 1")
        assert [finding for finding in findings(data) if "position 0" in finding]


def test_verify_reads_a_copy_with_a_write_ahead_log_that_was_not_checkpointed(data, tmp_path):
    with running(data) as base:
        create(base)
        publish(base)
        with contextlib.closing(sqlite3.connect(data / "events.db")) as connection, connection:
            connection.execute("UPDATE chunks SET count = count + 1")
        # Like a snapshot of the file system, but without the index.
        copied = copy(data, tmp_path / "copied")
        for path in copied.glob("*-shm"):
            path.unlink()
        assert (copied / "events.db-wal").stat().st_size
    names = {path.name for path in copied.iterdir()}
    assert [finding for finding in findings(copied) if "position 0" in finding]
    assert {path.name for path in copied.iterdir()} == names


@pytest.mark.parametrize("name", ["events.db", "registry.db"])
def test_verify_does_not_migrate_files_of_older_versions(data, backup, name):
    with contextlib.closing(sqlite3.connect(backup / name)) as connection, connection:
        if name == "events.db":
            connection.execute("PRAGMA user_version = 4")
        else:
            connection.execute("UPDATE alembic_version SET version_num = '0004'")
    before = (backup / name).read_bytes()
    # The registry ends the check; other stores are findings, so that the check goes on.
    try:
        said = findings(backup)
    except Unavailable as ex:
        said = [str(ex)]
    assert any("written by an older version of Rioni" in each for each in said)
    assert (backup / name).read_bytes() == before
