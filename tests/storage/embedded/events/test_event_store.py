import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from rioni.domain.ports.host import StorePools
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events import stored_once
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.contracts.event_store import TOPIC, EventStoreContract, events, read_all
from tests.contracts.stored_once import DeduplicationContract
from tests.support.clock import ManualClock


class TestEmbeddedEventStore(EventStoreContract):
    @pytest.fixture
    def silent_store(
        self, directory: DataDirectory, signals: EmbeddedSignals, clock: ManualClock
    ) -> Iterator[EmbeddedEventStore]:
        answers = threading.Event()

        def run_in_pool(function, /, *args, **kwargs):
            answers.wait()
            return function(*args, **kwargs)

        store = EmbeddedEventStore(
            directory.events, clock=clock, signals=signals, pools=StorePools.all(run_in_pool), append_timeout_s=1.0
        )
        yield store
        answers.set()
        store.close()


class TestEmbeddedDeduplication(DeduplicationContract):
    pass


def test_idempotency_keys_are_known_to_other_processes_and_after_a_restart(store, other_store, directory, signals):
    claim = IdempotencyClaim("name", "digest")
    store.create_topic(TOPIC, 1)
    assert store.append(TOPIC, {0: events(1)}, claim=claim) == {0: 0}
    assert other_store.claimed("name") == "digest"
    assert other_store.append(TOPIC, {0: events(1)}, claim=claim) == {}
    with closing(EmbeddedEventStore(directory.events, clock=ManualClock(), signals=signals)) as restarted:
        assert restarted.append(TOPIC, {0: events(1)}, claim=claim) == {}
        assert read_all(restarted, TOPIC, 0) == events(1)


def test_any_number_of_idempotency_keys_expires(store):
    with store._database.writing() as connection:
        stored_once.add_keys(
            connection,
            [IdempotencyClaim(str(number), "digest") for number in range(2 * stored_once.DELETED_KEYS_MAX + 1)],
            0,
        )
    store.expire_ids(1)
    assert store._database.fetch("SELECT count(*) FROM claims") == [(0,)]
