"""The eventsourcing library's own test suites for recorders, on both databases."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.persistence import (  # noqa: TID251 - the recorder is what is tested here
    InfrastructureFactory,
    OperationalError,
    StoredEvent,
)
from eventsourcing.tests.persistence import (
    AggregateRecorderTestCase,
    ApplicationRecorderTestCase,
    InfrastructureFactoryTestCase,
    NonInterleavingNotificationIDsBaseCase,
    ProcessRecorderTestCase,
    TrackingRecorderTestCase,
)
from eventsourcing.utils import Environment, get_topic, resolve_topic

from rioni.storage.log.recorder import SqlRecorder
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import upgrade
from tests.support.waiting import WAIT_S


class OnSqlite:
    """Provides a recorder over a fresh file."""

    recorder_class = SqlRecorder

    @pytest.fixture(autouse=True)
    def _database(self, sqlite_engine):
        self.engine = sqlite_engine
        yield
        join_readers()

    def create_recorder(self) -> SqlRecorder:
        return self.recorder_class.over(self.engine)


@pytest.mark.postgres
class OnPostgres(OnSqlite):
    """Provides a recorder over a fresh database of a real server."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres_engine):
        self.engine = postgres_engine
        yield
        join_readers()


def join_readers() -> None:
    """A suite signals its reading threads to stop, and does not wait until they have."""
    for thread in threading.enumerate():
        if "read_continuously" in thread.name:
            thread.join()


class AggregateRecorder(SqlRecorder):
    """A recorder of streams only: it returns no positions, as the library's suite expects."""

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


def test_a_subscription_waits_at_the_end_for_new_entries(engine):
    recorder = SqlRecorder.over(engine)
    event = StoredEvent(originator_id=uuid4(), originator_version=1, topic="topic", state=b"state")
    with ThreadPoolExecutor(1) as executor, recorder.subscribe() as subscription:
        coming = executor.submit(next, subscription)
        recorder.insert_events([event])
        assert coming.result(WAIT_S).originator_id == event.originator_id


def test_an_unavailable_database_is_an_error_of_the_library(tmp_path):
    recorder = SqlRecorder.over(create_engine(f"sqlite:///{tmp_path}/missing/registry.db"))
    with pytest.raises(OperationalError, match="permissions"):
        recorder.max_notification_id()


class SqlFactory(InfrastructureFactory[SqlRecorder]):
    """Shows that an application of the library could run on this recorder; Rioni itself needs no factory."""

    def __init__(self, env: Environment) -> None:
        super().__init__(env)
        self._engine = create_engine(self.env["DATABASE"])
        upgrade(self._engine)

    def application_recorder(self) -> SqlRecorder:
        return SqlRecorder.over(self._engine)

    def aggregate_recorder(self, purpose: str = "events") -> SqlRecorder:  # noqa: ARG002 - the library asks for it
        return self.application_recorder()

    def process_recorder(self) -> SqlRecorder:
        return self.application_recorder()

    def tracking_recorder(self, tracking_recorder_class: type[SqlRecorder] | None = None) -> SqlRecorder:
        return (tracking_recorder_class or self._named_class() or SqlRecorder).over(self._engine)

    def close(self) -> None:
        self._engine.dispose()

    def _named_class(self) -> type[SqlRecorder] | None:
        return resolve_topic(topic) if (topic := self.env.get(self.TRACKING_RECORDER_TOPIC)) else None


class OtherRecorder(SqlRecorder):
    """Another class, for the suite to name."""


class TestFactory(InfrastructureFactoryTestCase[SqlFactory]):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.env = Environment(
            env={"PERSISTENCE_MODULE": get_topic(SqlFactory), "DATABASE": f"sqlite:///{tmp_path}/registry.db"}
        )

    def expected_factory_class(self):
        return SqlFactory

    def expected_aggregate_recorder_class(self):
        return SqlRecorder

    expected_application_recorder_class = expected_aggregate_recorder_class
    expected_process_recorder_class = expected_aggregate_recorder_class
    expected_tracking_recorder_class = expected_aggregate_recorder_class

    def tracking_recorder_subclass(self):
        return OtherRecorder
