import contextlib
import fcntl
import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine, exc, insert, select, text

from rioni.domain.errors import Unavailable
from rioni.files.extras import requirement
from rioni.sql.log_tables import HEAD, TRACKING
from rioni.storage.log.recorder import lock_head
from rioni.storage.sql import database_connections
from rioni.storage.sql.engines import STATEMENT_S, DriverMissing, create_engine, reading, writing
from rioni.storage.sql.migration import upgrade
from tests.support.waiting import WAIT_S


ROOT = Path(__file__).parents[3]


def track(engine: Engine, name: str) -> None:
    with writing(engine) as connection:
        connection.execute(insert(TRACKING).values(name=name, position=1))


def tracked(engine: Engine) -> set[str]:
    with reading(engine) as connection:
        return set(connection.scalars(select(TRACKING.c.name)))


# --- which database ---


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://root:secret@localhost/rioni", "sqlite://", "sqlite:///:memory:"]
)
def test_an_unsupported_database_is_rejected_without_showing_passwords(url):
    with pytest.raises(Unavailable, match=r"sqlite:///path|an SQLite file or PostgreSQL") as caught:
        create_engine(url)
    assert "secret" not in str(caught.value)


def test_without_the_driver_of_postgresql_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(DriverMissing, match=re.escape(f"pip install {requirement('cluster')}")):
        create_engine("postgresql://localhost/rioni")


@pytest.mark.parametrize("url", ["postgresql://u@localhost/x", "postgresql+psycopg://u@localhost/x"])
def test_any_url_of_postgresql_selects_psycopg_3(url):
    assert create_engine(url).dialect.driver == "psycopg"


def test_sqlite_needs_neither_psycopg_nor_alembic_to_be_imported(sqlite_engine):
    program = (
        "import sys\n"
        "from rioni.storage.log import event_log\n"
        "from rioni.storage.sql import engines, migration\n"
        f"engine = engines.create_engine({sqlite_engine.url.render_as_string()!r})\n"
        "migration.upgrade(engine)\n"
        "event_log.SqlEventLog(engine, {}).head()\n"
        "print(sorted({'psycopg', 'alembic'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_unreachable_server_is_unavailable(tmp_path):
    engine = create_engine(f"postgresql://postgres@/x?host={tmp_path}")
    with pytest.raises(Unavailable, match="can't be reached now") as caught, writing(engine):
        pass
    # The address is for the operator, not for clients.
    assert str(tmp_path) not in str(caught.value)
    assert str(tmp_path) in caught.value.__notes__[0]


# --- SQLite ---


def test_commits_on_sqlite_survive_a_power_failure(sqlite_engine):
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    with reading(sqlite_engine) as connection:
        assert {name: connection.scalar(text(f"PRAGMA {name}")) for name in expected} == expected


def test_a_missing_directory_is_named_in_the_error(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'missing' / 'registry.db'}")
    with pytest.raises(Unavailable, match="permissions"), reading(engine):
        pass
    with pytest.raises(Unavailable, match="permissions"), writing(engine):
        pass


def test_a_file_that_is_not_a_database_is_named_as_damaged(tmp_path):
    (tmp_path / "registry.db").write_bytes(b"not a database " * 100)
    with (
        pytest.raises(Unavailable, match="restore a backup"),
        reading(create_engine(f"sqlite:///{tmp_path}/registry.db")),
    ):
        pass


def test_a_full_disk_is_named_in_the_error_and_nothing_is_written(sqlite_engine):
    with writing(sqlite_engine) as connection:
        pages = connection.scalar(text("PRAGMA page_count"))
        # It is a setting of this connection, which remains the only one.
        connection.execute(text(f"PRAGMA max_page_count = {pages}"))

    def fill() -> None:
        with writing(sqlite_engine) as connection:
            connection.execute(insert(TRACKING).values(name="a", position=1))
            connection.execute(insert(TRACKING).values(name="x" * 1_000_000, position=1))

    with pytest.raises(Unavailable, match="Free space"):
        fill()
    assert tracked(sqlite_engine) == set()
    track(sqlite_engine, "b")
    assert tracked(sqlite_engine) == {"b"}


def test_a_writer_that_waits_too_long_times_out(sqlite_engine):
    impatient = create_engine(sqlite_engine.url.render_as_string(), lock_wait_s=0.05)
    with writing(sqlite_engine) as connection:
        with pytest.raises(Unavailable, match="waiting for the database write lock"):
            track(impatient, "a")
        connection.execute(insert(TRACKING).values(name="b", position=1))
    track(impatient, "c")
    assert tracked(sqlite_engine) == {"b", "c"}
    impatient.dispose()


def test_other_tools_that_ignore_our_lock_cannot_write_in_between(sqlite_engine):
    """Other tools do not use our lock; what a command has read must still be true when it writes."""
    with (
        writing(sqlite_engine),
        contextlib.closing(sqlite3.connect(sqlite_engine.url.database, timeout=0)) as stranger,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        stranger.execute("BEGIN IMMEDIATE")


def test_readers_never_wait_for_writers(engine):
    with writing(engine) as connection:
        connection.execute(insert(TRACKING).values(name="a", position=1))
        assert tracked(engine) == set()
    assert tracked(engine) == {"a"}


def test_a_reader_sees_one_snapshot_despite_concurrent_commits(engine):
    """A worker loads the states and their position one after the other: they must belong together."""
    with reading(engine) as connection:
        before = connection.execute(select(TRACKING.c.name)).all()
        track(engine, "a")
        assert connection.execute(select(TRACKING.c.name)).all() == before
    assert tracked(engine) == {"a"}


def test_a_child_that_was_forked_in_a_transaction_does_not_keep_the_lock(sqlite_engine):
    go_on = os.pipe()
    with writing(sqlite_engine):
        child = os.posix_spawn(
            "/bin/sh", ["sh", "-c", "read line"], {}, file_actions=[(os.POSIX_SPAWN_DUP2, go_on[0], 0)]
        )
    fd = os.open(f"{sqlite_engine.url.database}-lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child is still there"
    os.close(fd)
    os.write(go_on[1], b"\n")
    assert os.waitpid(child, 0) == (child, 0)
    for end in go_on:
        os.close(end)


def test_connections_are_reused_and_only_as_many_are_opened_as_are_used_at_once(sqlite_engine):
    together = threading.Barrier(3)
    seen: set[int] = set()

    def use(barrier: bool) -> None:
        with reading(sqlite_engine) as connection:
            seen.add(id(connection.connection.driver_connection))
            if barrier:
                together.wait(WAIT_S)

    threads = [threading.Thread(target=use, args=(True,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(10):
        use(False)
    assert len(seen) == 3
    assert sqlite_engine.pool.status() == "3 free connections"
    assert open_files(sqlite_engine) > 0
    sqlite_engine.dispose()
    assert open_files(sqlite_engine) == 0


def open_files(engine: Engine) -> int:
    """How many files of a database are open; other threads open and close others meanwhile."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(each.readlink()).startswith(str(engine.url.database))
    return count


# --- transactions on both ---


def test_a_transaction_that_raises_is_rolled_back_and_the_connection_still_works(engine):
    class Stop(Exception):
        pass

    def fail() -> None:
        with writing(engine) as connection:
            connection.execute(insert(TRACKING).values(name="a", position=1))
            raise Stop

    for _ in range(3):
        with pytest.raises(Stop):
            fail()
    track(engine, "b")
    assert tracked(engine) == {"b"}


def test_programming_errors_are_not_hidden(engine):
    with pytest.raises(exc.DBAPIError, match="nonsense"), reading(engine) as connection:
        connection.execute(text("SELECT nonsense FROM head"))
    track(engine, "a")
    with pytest.raises(exc.IntegrityError):
        track(engine, "a")


def test_schema_definitions_are_rolled_back_too(engine):
    class Stop(Exception):
        pass

    def define() -> None:
        with writing(engine) as connection:
            connection.execute(text("CREATE TABLE more (name TEXT)"))
            raise Stop

    for _ in range(2):
        with pytest.raises(Stop):
            define()


# --- PostgreSQL ---


@pytest.mark.postgres
def test_a_writer_that_waits_too_long_on_postgresql_times_out(postgres_engine):
    url = postgres_engine.url.render_as_string(hide_password=False)
    impatient = create_engine(url, lock_wait_s=0.05)
    lock = text("LOCK TABLE head")
    with writing(postgres_engine) as connection:
        connection.execute(lock)
        with pytest.raises(Unavailable, match="lock timeout"), writing(impatient) as other:
            other.execute(lock)
    impatient.dispose()


@pytest.mark.postgres
def test_commits_on_postgresql_wait_for_the_disk_unless_that_is_not_needed(postgres_engine):
    shown = []
    for durable in (False, True):
        with writing(postgres_engine, durable=durable) as connection:
            shown.append(connection.scalar(text("SHOW synchronous_commit")))
    assert shown == ["off", "on"]


@pytest.mark.postgres
def test_a_connection_that_the_server_has_closed_is_replaced(postgres_engine):
    with reading(postgres_engine) as connection:
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
    other = create_engine(postgres_engine.url.render_as_string(hide_password=False))
    with reading(other) as connection:
        connection.execute(text(f"SELECT pg_terminate_backend({pid}, 10000)"))
    other.dispose()
    track(postgres_engine, "a")
    assert tracked(postgres_engine) == {"a"}


@pytest.mark.postgres
def test_an_exhausted_connection_pool_is_an_error(postgres_engine):
    small = create_engine(postgres_engine.url.render_as_string(hide_password=False), lock_wait_s=0.05)

    def take(connections: int) -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(connections):
                stack.enter_context(reading(small)).scalar(text("SELECT 1"))

    take(10)
    with pytest.raises(Unavailable, match="All connections"):
        take(100)
    take(10)
    small.dispose()


@pytest.mark.postgres
def test_a_writer_that_hangs_loses_its_lock_to_others(postgres_url):
    url = postgres_url()
    hanging, others = create_engine(f"{url}&options=-c idle_in_transaction_session_timeout=100ms"), create_engine(url)
    upgrade(others)

    def hang() -> None:
        with writing(hanging) as connection:
            lock_head(connection)
            with writing(others) as other:
                assert lock_head(other).position == 0
            connection.execute(select(HEAD))

    with pytest.raises(Unavailable):
        hang()
    for engine in (hanging, others):
        engine.dispose()


@pytest.mark.postgres
def test_the_options_of_the_url_are_kept(postgres_url):
    engine = create_engine(postgres_url() + "&options=-c statement_timeout=12345")
    with reading(engine) as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == "12345ms"
        assert connection.scalar(text("SHOW lock_timeout")) == "30s"
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "1min"
    engine.dispose()


@pytest.mark.postgres
def test_a_server_that_does_not_answer_times_out(postgres_url, monkeypatch):
    monkeypatch.setattr(database_connections, "GRACE_S", 1 - STATEMENT_S)
    engine = create_engine(postgres_url())
    begun_s = time.monotonic()
    with pytest.raises(Unavailable, match="The database can't be reached now"), reading(engine) as connection:
        connection.execute(text("SELECT pg_sleep(60)"))
    assert time.monotonic() - begun_s < 40
    with reading(engine) as connection:
        assert connection.scalar(text("SELECT 1")) == 1
    engine.dispose()


@pytest.mark.slow
def test_under_gevent_native_threads_open_the_first_connection_though_others_fail_to():
    program = [sys.executable, "-m", "tests.storage.sql.gevent_connections"]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.stdout == "all is well\n", done.stderr
