"""The library's own suites for recorders, on both databases."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest
from eventsourcing.persistence import StoredEvent  # noqa: TID251 - the recorder is what is tested here
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)

from rioni.storage.recorder import SqlRecorder


class OnSqlite:
    """Gives a suite a recorder over a fresh file."""

    recorder_class = SqlRecorder

    @pytest.fixture(autouse=True)
    def _database(self, sqlite_engine):
        self.engine = sqlite_engine
        yield
        join_readers()

    def create_recorder(self) -> SqlRecorder:
        return self.recorder_class(self.engine)


@pytest.mark.postgres
class OnPostgres(OnSqlite):
    """Gives a suite a recorder over a fresh database of a real server."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres_engine):
        self.engine = postgres_engine
        yield
        join_readers()


def join_readers() -> None:
    """A suite tells its reading threads to stop, and does not wait until they have."""
    for thread in threading.enumerate():
        if "read_continuously" in thread.name:
            thread.join()


class AggregateRecorder(SqlRecorder):
    """A recorder of nothing but streams: it tells no positions, as the library's suite wants."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> None:  # type: ignore[override]
        super().insert_events(stored_events, **kwargs)


class TestAggregateRecorderOnSqlite(OnSqlite, AggregateRecorderTestCase):
    recorder_class = AggregateRecorder


class TestAggregateRecorderOnPostgres(OnPostgres, AggregateRecorderTestCase):
    recorder_class = AggregateRecorder


class TestApplicationRecorderOnSqlite(OnSqlite, ApplicationRecorderTestCase[SqlRecorder]):
    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()


class TestApplicationRecorderOnPostgres(OnPostgres, ApplicationRecorderTestCase[SqlRecorder]):
    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()


class TestTrackingRecorderOnSqlite(OnSqlite, TrackingRecorderTestCase):
    pass


class TestTrackingRecorderOnPostgres(OnPostgres, TrackingRecorderTestCase):
    pass


class TestProcessRecorderOnSqlite(OnSqlite, ProcessRecorderTestCase):
    pass


class TestProcessRecorderOnPostgres(OnPostgres, ProcessRecorderTestCase):
    pass


class TestNonInterleavingOnSqlite(OnSqlite, NonInterleavingNotificationIDsBaseCase):
    pass


class TestNonInterleavingOnPostgres(OnPostgres, NonInterleavingNotificationIDsBaseCase):
    pass
