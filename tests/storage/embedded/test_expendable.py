"""Each file of a data directory, each damage: what may be lost is made anew, what must not be lost stops the start."""

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.system.client_activity import ActivityKey, LastActivity
from rioni.domain.system.reports import Job
from rioni.storage.embedded.expendable import (
    ActivityDatabase,
    EmbeddedActivity,
    EmbeddedConnectionQuota,
    EmbeddedJobs,
    JobsDatabase,
    SlotsDatabase,
)
from rioni.storage.embedded.spool import FileSpool
from tests.installation.test_stores import PARTITION, create, publish, running
from tests.support.verification import findings


EXPENDABLE = ("slots.db", "activity.db", "jobs.db", "names.db")
LOCKS = (
    "lock",
    "leadership",
    "registry.db-lock",
    "registry.db-changes",
    "registry.db-rebuild",
    "events.db-lock",
    "coordination.db-lock",
    "slots.db-lock",
    "activity.db-lock",
    "jobs.db-lock",
    "slots.db-wal",
    "slots.db-shm",
    "jobs.db-wal",
    "scratch/elected",
)
FOLDERS = ("signals", "scratch", "spools", "coordination.db-workers", "scratch/metrics")
KEPT = ("registry.db", "events.db", "coordination.db", "format")


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 0xFF
    path.write_bytes(content)


def as_directory(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "something").touch()


def of_a_later_version(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")


def without_its_tables(path: Path) -> None:
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.execute("PRAGMA user_version = 1")
        connection.commit()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flip(path, 0),
    "page size": lambda path: flip(path, 16),
    "schema": lambda path: flip(path, 100),
    "a page": lambda path: flip(path, -8000),
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"S"),
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "half a page": lambda path: os.truncate(path, 4096),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path: path.write_bytes(b"\x89PNG no database" * 1000),
    "a directory": as_directory,
    "a later version": of_a_later_version,
    "other tables": without_its_tables,
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with all files, of a stopped broker."""
    data = tmp_path_factory.mktemp("original") / "data"
    with running(data) as base:
        create(base)
        publish(base)
        base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
        use(data, base)
        with contextlib.closing(sqlite3.connect(data / "names.db")) as connection:
            connection.execute("CREATE TABLE names (name)")
            connection.executemany("INSERT INTO names VALUES (?)", [("x" * 500,)] * 100)
            connection.commit()
        assert base.adapters.leadership.held()
    (data / "scratch" / "metrics").mkdir()
    (data / "scratch" / "elected").touch()
    return data


def use(data: Path, base) -> None:
    """Use all files that may be lost, as workers do."""
    with contextlib.closing(EmbeddedActivity(data / "activity.db")) as activity:
        activity.add({ActivityKey("read", f"r{n}", "c" * 100): LastActivity(1, 2, 3) for n in range(100)})
        assert activity.of_any(["read"], "r7")
    with contextlib.closing(EmbeddedJobs(data / "jobs.db")) as jobs:
        jobs.put(job())
        assert jobs.all() == [job()]
    assert base.adapters.quota.acquire("holder", {f"slot {n}": 1 for n in range(100)}) == []
    base.adapters.quota.release("holder")
    with contextlib.closing(FileSpool(base.directory.spools, "requests")) as spool:
        assert spool.append(b"{}\n")
        for file in spool.finished(current=True):
            file.remove()
    base.adapters.signals.watch(["key"]).close()
    base.adapters.leadership.held()


def job(number: str = "1") -> Job:
    now = "2026-01-02T03:04:05.678Z"
    return Job(id=number, kind="backup", name="x" * 200, state="running", client="", started_at=now, updated_at=now)


def damaged(original: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]) -> Path:
    data = shutil.copytree(original, tmp_path / "data")
    damage(data / name)
    return data


def about(name: str, logged) -> list[str]:
    """The messages that name a file. They are taken before they are printed: how depends on the process's tests."""
    return [each["event"] for each in logged if name in each.values()]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", EXPENDABLE)
def test_what_may_be_lost_is_made_anew_with_a_line_in_the_log(original, tmp_path, name, damage):
    data = damaged(original, tmp_path, name, DAMAGES[damage])
    before = None if (data / name).is_dir() else (data / name).read_bytes()
    with capture_logs() as logged, running(data) as base:
        use(data, base)
    said = about(name, logged)
    kept = list(data.glob(f"{name}.damaged-*"))
    # An index of Kafka is looked at when a store in Kafka uses it; a page that nobody uses may be whatever it is.
    if damage not in {"empty", "one byte", "a page"} and not (
        name == "names.db" and damage in {"a later version", "other tables"}
    ):
        (moved,) = kept
        assert moved.is_dir() if before is None else moved.read_bytes() == before
        assert len(said) == 1
        assert "made anew" in said[0] or "moved aside" in said[0]
    elif damage in {"empty", "one byte"} and name != "names.db":
        assert said == ["a file that may be lost was empty; made anew"]
    assert findings(data) == []
    with capture_logs() as logged, running(data) as base:
        use(data, base)
    assert about(name, logged) == []


@pytest.mark.parametrize("kind", [ActivityDatabase, JobsDatabase, SlotsDatabase])
def test_a_file_that_another_worker_is_just_making_is_no_loss(tmp_path, kind):
    (tmp_path / "made.db").touch()
    with capture_logs() as logged, contextlib.closing(kind(tmp_path / "made.db")):
        pass
    assert logged == []


@pytest.mark.parametrize("name", LOCKS)
def test_a_directory_in_the_place_of_a_lock_is_moved_aside(original, tmp_path, name):
    data = damaged(original, tmp_path, name, as_directory)
    with running(data) as base:
        use(data, base)
    (moved,) = (data / name).parent.glob(f"{Path(name).name}.damaged-*")
    assert (moved / "something").exists()


@pytest.mark.parametrize("damage", ["empty", "garbage", "zeros"])
@pytest.mark.parametrize("name", [each for each in LOCKS if "slots.db-" not in each and "-wal" not in each])
def test_the_content_of_a_lock_does_not_matter(original, tmp_path, name, damage):
    data = shutil.copytree(original, tmp_path / "data")
    (data / name).touch()
    DAMAGES[damage](data / name)
    with running(data) as base:
        use(data, base)


@pytest.mark.parametrize("name", FOLDERS)
def test_a_file_in_the_place_of_a_folder_is_moved_aside(original, tmp_path, name):
    data = shutil.copytree(original, tmp_path / "data")
    shutil.rmtree(data / name, ignore_errors=True)
    (data / name).write_bytes(b"in the way")
    with running(data) as base:
        use(data, base)
    (moved,) = (data / name).parent.glob(f"{Path(name).name}.damaged-*")
    assert moved.read_bytes() == b"in the way"


@pytest.mark.parametrize(
    ("name", "damage"),
    # The registry has its version in a table.
    [each for each in product(KEPT, DAMAGES) if each[1] != "a page" and each != ("registry.db", "a later version")],
)
def test_what_must_not_be_lost_stops_the_start_and_is_not_changed(original, tmp_path, name, damage):
    if name == "format" and damage in {
        "a page",
        "half a page",
        "a later version",
        "other tables",
        "page size",
        "schema",
    }:
        damage = "half"
    data = damaged(original, tmp_path, name, DAMAGES[damage])
    before = None if (data / name).is_dir() else (data / name).read_bytes()
    with pytest.raises(RioniError) as refused, running(data):
        pass
    said = str(refused.value)
    assert name in said
    assert "backup" in said or "accept-loss" in said or "Use that version" in said or "Use the version" in said, said
    assert before is None or (data / name).read_bytes() == before
    assert not [*data.glob("*.damaged-*")]


RUNNING = ("garbage", "half", "zeros", "first byte", "a directory", "missing")


@pytest.mark.parametrize("damage", RUNNING)
def test_what_is_damaged_in_use_is_made_anew_in_all_processes(tmp_path, damage):
    """Two instances stand for two processes: each has its own connections."""
    path = tmp_path / "jobs.db"
    first, second = EmbeddedJobs(path), EmbeddedJobs(path)
    with contextlib.closing(first), contextlib.closing(second):
        for n in range(200):
            first.put(job(f"{n}"))
        assert len(second.all()) == 200
        for side in ("-wal", "-shm"):
            Path(f"{path}{side}").unlink(missing_ok=True)
        if damage == "missing":
            path.unlink()
        elif damage == "a directory":
            path.rename(tmp_path / "gone")
            as_directory(path)
        else:
            with path.open("r+b") as file:
                content = bytearray(file.read())
                changed = tmp_path / "changed"
                changed.write_bytes(content)
                DAMAGES[damage](changed)
                new = changed.read_bytes()
                file.seek(0)
                file.write(new)
                file.truncate(len(new))
        for jobs in (first, second, first):
            for _ in range(3):
                with contextlib.suppress(Unavailable):
                    jobs.put(job())
                    jobs.all()
        assert job() in first.all()
        assert first.all() == second.all()


def test_slots_that_are_damaged_in_use_fail_one_stream_at_most(tmp_path):
    quota = EmbeddedConnectionQuota(tmp_path / "slots.db", worker="w", is_alive=lambda _: True)
    with contextlib.closing(quota):
        assert quota.acquire("a", {"slot": 1}) == []
        (tmp_path / "slots.db").write_bytes(b"garbage" * 3000)
        (tmp_path / "slots.db-wal").unlink(missing_ok=True)
        (tmp_path / "slots.db-shm").unlink(missing_ok=True)
        for _ in range(2):
            with contextlib.suppress(Unavailable):
                quota.release("a")
        assert quota.acquire("b", {"slot": 1}) == []


def test_threads_that_use_a_file_while_it_is_made_anew_go_on(tmp_path):
    jobs = EmbeddedJobs(tmp_path / "jobs.db")
    failed: list[Exception] = []

    def work() -> None:
        for _ in range(50):
            try:
                jobs.put(job())
                jobs.all()
            except Unavailable:
                pass
            except Exception as ex:  # noqa: BLE001 - what the test is about
                failed.append(ex)

    with contextlib.closing(jobs):
        jobs.put(job())
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            (tmp_path / "jobs.db").unlink(missing_ok=True)
        for thread in threads:
            thread.join()
        assert failed == []
        jobs.put(job())
        assert jobs.all() == [job()]
