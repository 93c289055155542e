"""Ended sessions are recorded for as long as they would last, and no longer, for all processes."""

import pytest
from sqlalchemy import Engine, func, select

from rioni.storage.sql import access_tables
from rioni.storage.sql.access_tables import ENDED_SESSIONS, SqlEndedSessions
from rioni.storage.sql.engines import create_engine, reading


HOLDER_CHARACTERS = 3


@pytest.fixture
def store(engine: Engine):
    return SqlEndedSessions(engine, HOLDER_CHARACTERS)


def kept(engine: Engine):
    with reading(engine) as connection:
        return connection.scalar(select(func.count()).select_from(ENDED_SESSIONS))


def test_a_session_that_has_ended_is_known_to_all_processes(store: SqlEndedSessions, engine: Engine):
    assert not store.has_ended("a")
    store.end("a", 1_000, 0)
    store.end("a", 1_000, 0)
    other = create_engine(engine.url.render_as_string(hide_password=False))
    assert SqlEndedSessions(other, HOLDER_CHARACTERS).has_ended("a")
    assert not SqlEndedSessions(other, HOLDER_CHARACTERS).has_ended("b")
    other.dispose()


def test_sessions_that_are_over_are_forgotten(store: SqlEndedSessions, engine: Engine):
    store.end("a", 1_000, 0)
    store.end("b", 2_000, 999)
    assert store.has_ended("a")
    store.end("c", 2_000, 1_000)
    assert not store.has_ended("a")
    assert kept(engine) == 2


def test_their_number_is_bounded_by_forgetting_those_that_are_over_first(engine: Engine):
    assert access_tables.SESSIONS_KEPT_MAX == 100_000
    store = SqlEndedSessions(engine, HOLDER_CHARACTERS, kept_max=5)
    for number in range(20):
        store.end(f"one {number}", 1_000 + number, 0)
    assert kept(engine) == 5
    assert store.has_ended("one 19")
    assert not store.has_ended("one 14")


def test_nobody_pushes_out_the_ended_sessions_of_others(engine: Engine):
    store = SqlEndedSessions(engine, HOLDER_CHARACTERS, kept_max=5)
    for name in ("two", "few"):
        store.end(f"{name} 0", 1_000, 0)
    for number in range(100):
        store.end(f"one {number}", 2_000 + number, 0)
    assert kept(engine) == 5
    assert store.has_ended("two 0")
    assert store.has_ended("few 0")
    assert store.has_ended("one 99")
