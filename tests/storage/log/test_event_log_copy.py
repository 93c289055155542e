from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, insert, select

from rioni.domain.errors import Conflict
from rioni.sql.log_tables import TRACKING
from rioni.storage.log import event_log
from rioni.storage.log.event_log import SqlEventLog, copy_followers, copy_log
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import reading, writing
from tests.contracts.event_log import TOPICS, note, read_all
from tests.storage.conftest import migrated_file, opened


class Interrupted(Exception):
    """Raised to interrupt a copy."""


@pytest.fixture
def source(sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlEventLog]:
    """A log of seven entries, of which two are copied at a time."""
    monkeypatch.setattr(event_log, "ROWS_PER_TURN", 2)
    log = SqlEventLog(sqlite_engine, TOPICS)
    for number in range(7):
        note(log, f"a{number % 3}", f"text {number}", version=number // 3)
    yield log
    log.close()


@pytest.fixture
def target(engine: Engine, tmp_path) -> Iterator[SqlEventLog]:
    """An empty log, in either kind of database."""
    if engine.dialect.name == "sqlite":
        (engine,) = opened(migrated_file(tmp_path / "target.db"))
    log = SqlEventLog(engine, TOPICS)
    yield log
    log.close()


def copy(source: SqlEventLog, target: SqlEventLog, *, interrupt_at: int | None = None) -> list[int]:
    """Copy, and return the progress after each step."""
    reached = []

    def progress(done, total):
        assert total == source.head().position
        reached.append(done)
        if done == interrupt_at:
            raise Interrupted

    assert copy_log(source.engine, target.engine, progress) == source.head()
    return reached


def test_the_copy_has_the_same_entries_and_the_same_chain(source, target):
    assert copy(source, target) == [0, 2, 4, 6, 7]
    assert read_all(target) == read_all(source)
    assert target.head() == source.head()
    assert not list(verify(target.engine, TOPICS))


def test_an_interrupted_copy_continues(source, target):
    with pytest.raises(Interrupted):
        copy(source, target, interrupt_at=4)
    assert copy(source, target) == [4, 6, 7]
    assert read_all(target) == read_all(source)


def test_a_finished_copy_continues_with_newer_entries(source, target):
    copy(source, target)
    note(source, "b", "later")
    assert copy(source, target) == [7, 8]


def test_a_copy_with_entries_of_its_own_is_left_unchanged(source, target):
    copy(source, target)
    note(target, "b", "later")
    assert copy(source, target) == [7]
    assert target.head().position == 8


def test_a_copy_of_another_log_is_rejected(source, target):
    note(target, "b", "of another log")
    with pytest.raises(Conflict, match="entry 1 differs"):
        copy(source, target)
    assert target.head().position == 1


def test_log_consumers_continue_at_their_checkpoints(source, target):
    with writing(source.engine) as connection:
        connection.execute(insert(TRACKING), [{"name": name, "position": 5} for name in ("feed", "models", "new")])
    with writing(target.engine) as connection:
        connection.execute(insert(TRACKING), [{"name": name, "position": 3} for name in ("feed", "models")])
    copy_followers(source.engine, target.engine, but="models")
    with reading(target.engine) as connection:
        rows = connection.execute(select(TRACKING.c.name, TRACKING.c.position).order_by(TRACKING.c.name)).all()
    assert [tuple(row) for row in rows] == [("feed", 5), ("models", 3), ("new", 5)]
