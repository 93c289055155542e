"""Only one rebuild at a time uses a database, over all processes and machines."""

import psycopg
import pytest
from sqlalchemy import make_url

from rioni.domain.errors import Conflict, Unavailable
from rioni.storage.sql.database_locks import rebuild_lock
from rioni.storage.sql.engines import create_engine
from tests.storage.conftest import ON_BOTH


@pytest.fixture
def other(migrated_url, engine):
    """The engine of another process."""
    other = create_engine(migrated_url)
    yield other
    other.dispose()


def test_a_second_rebuild_is_rejected_until_the_first_has_ended(engine, other):
    for _ in range(2):
        with rebuild_lock(engine) as check:
            check()
            for _ in range(3):
                with pytest.raises(Conflict, match="Another rebuild"), rebuild_lock(other):
                    pass
            check()


@pytest.mark.parametrize("migrated_url", ON_BOTH[1:], indirect=True)
def test_the_next_rebuild_can_begin_before_the_server_has_ended_the_session_of_the_last(engine, other, monkeypatch):
    left_open = []
    with monkeypatch.context() as patched:
        # A function becomes a method there, as `append` does not.
        patched.setattr(psycopg.Connection, "close", lambda connection: left_open.append(connection))  # noqa: PLW0108
        with rebuild_lock(engine):
            pass
    assert left_open
    with rebuild_lock(other) as check:
        check()
    for connection in left_open:
        connection.close()


def test_a_rebuild_that_fails_releases_the_lock(engine, other):
    with pytest.raises(KeyboardInterrupt), rebuild_lock(engine):
        raise KeyboardInterrupt
    with rebuild_lock(other) as check:
        check()


@pytest.mark.parametrize("migrated_url", ON_BOTH[1:], indirect=True)
def test_a_rebuild_notices_that_it_has_lost_the_lock(engine, other, migrated_url):
    url = make_url(migrated_url).set(drivername="postgresql").render_as_string(hide_password=False)
    with rebuild_lock(engine) as check:
        with psycopg.connect(url, autocommit=True) as stranger:
            # Only in this database: the server is shared with other tests.
            stranger.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        with pytest.raises(Unavailable, match="The lock of the rebuild was lost"):
            check()
        with rebuild_lock(other):
            pass
