"""Batches are stored once although a process dies at any step, the database fails, or Kafka does not answer."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from rioni.cli.cluster.cluster import LocalCluster
from rioni.domain.errors import PartiallyStored, TopicClosed, Unavailable
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.events import KafkaEventStore
from rioni.storage.kafka.idempotence import idempotent_batch
from rioni.storage.kafka.idempotence.idempotency_index import IdempotencyIndex
from rioni.storage.kafka.idempotence.idempotent_appender import WAIT_S
from rioni.storage.kafka.idempotence.idempotent_batch import SETTLED_MS
from tests.contracts.event_store import TOPIC, events, read_all
from tests.storage.kafka import dying_appender
from tests.storage.kafka.dying_appender import BATCHES, CLAIM, DIED, STEPS, once
from tests.support.clock import ManualClock


pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def kafka_cluster(other_kafka_cluster: LocalCluster) -> LocalCluster:
    """A cluster that a test may pause."""
    return other_kafka_cluster


@pytest.fixture
def connection(connection: KafkaConnection) -> KafkaConnection:
    """A connection with the production configuration: records with old timestamps are rejected."""
    return KafkaConnection(bootstrap_servers=connection.bootstrap_servers, topic_prefix=connection.topic_prefix)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that starts now, so that Kafka accepts its timestamps."""
    clock = ManualClock()
    clock.advance(SystemClock().now_ms() - clock.now_ms())
    return clock


@pytest.fixture
def store(open_store: Callable[..., KafkaEventStore]) -> KafkaEventStore:
    store = open_store()
    store.create_topic(TOPIC, len(BATCHES))
    return store


@pytest.fixture(scope="module")
def appenders() -> Iterator[subprocess.Popen[str]]:
    """Forks the appenders that die."""
    command = [sys.executable, "-m", dying_appender.__name__]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def die(
    appenders: subprocess.Popen[str], connection: KafkaConnection, database: str, tmp_path: Path
) -> Callable[[str, str], None]:
    def die(step: str, kind: str) -> None:
        (folder := tmp_path / "dying").mkdir()
        arguments = [connection.bootstrap_servers, connection.topic_prefix, database, str(folder), step, kind]
        appenders.stdin.write(json.dumps(arguments) + "\n")
        appenders.stdin.flush()
        assert int(appenders.stdout.readline()) == DIED

    return die


def stored(store: KafkaEventStore) -> list[list[bytes]]:
    return [read_all(store, TOPIC, number) for number in BATCHES]


@pytest.mark.parametrize("kind", ["claim", "ids"])
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_stored_once_wherever_a_process_dies(store, die, clock, step, kind):
    die(step, kind)
    clock.advance(int(1_000 * WAIT_S) + 20_000)
    open_ended = step in {"noted", "one event", "some partitions"}
    if open_ended:
        # It might still arrive: Kafka accepts such recent timestamps.
        with pytest.raises(Unavailable, match="90 seconds after that attempt at the latest"):
            store.append(TOPIC, BATCHES, **once(kind))
        if kind == "claim":
            with pytest.raises(Unavailable, match="90 seconds after that attempt at the latest"):
                store.claimed(CLAIM.id)
        else:
            with pytest.raises(Unavailable, match="90 seconds after that attempt at the latest"):
                store.existing_ids("abcde")
        clock.advance(SETTLED_MS)
    appended = store.append(TOPIC, BATCHES, **once(kind))
    already = {"looked up": 0, "noted": 0, "one event": 1, "some partitions": 3, "acknowledged": 5}[step]
    assert appended.duplicates == already
    assert stored(store) == list(BATCHES.values())
    assert store.append(TOPIC, BATCHES, **once(kind)).duplicates == 5
    if kind == "claim":
        assert store.claimed(CLAIM.id) == CLAIM.digest
    else:
        assert set(store.existing_ids("abcdef")) == set("abcde")
    assert stored(store) == list(BATCHES.values())


@pytest.mark.parametrize(("step", "digest"), [("noted", None), ("one event", None), ("acknowledged", CLAIM.digest)])
def test_background_jobs_recover_the_outcome_of_interrupted_batches(store, die, clock, step, digest):
    die(step, "claim")
    clock.advance(SETTLED_MS + 60_000)
    store.expire_ids(0)
    assert store.claimed(CLAIM.id) == digest
    assert store._named._index.unfinished(clock.now_ms()) == []


def test_ids_that_are_settled_while_they_are_read_are_found(store, die, clock, monkeypatch):
    die("some partitions", "ids")
    clock.advance(SETTLED_MS + 60_000)
    index = store._named._index
    known = index.known

    def settled_meanwhile(hashes):
        found = known(hashes)
        store.expire_ids(0)
        return found

    monkeypatch.setattr(index, "known", settled_meanwhile)
    assert len(store.existing_ids("abcde")) == 3


def test_a_partially_stored_batch_is_not_completed_by_a_batch_with_other_partitions(store, die, clock):
    die("one event", "claim")
    clock.advance(SETTLED_MS + 60_000)
    with pytest.raises(Unavailable, match="under another key"):
        store.append(TOPIC, {0: events("a", "b", "c", "d", "e")}, claim=CLAIM)
    assert store.append(TOPIC, BATCHES, claim=CLAIM).duplicates == 1


def test_kafka_rejects_records_that_arrive_too_late(store, clock):
    clock.advance(-70_000)
    with pytest.raises(PartiallyStored):
        store.append(TOPIC, BATCHES, claim=CLAIM)
    clock.advance(70_000)
    with pytest.raises(Unavailable, match="90 seconds after that attempt at the latest"):
        store.append(TOPIC, BATCHES, claim=CLAIM)
    clock.advance(SETTLED_MS)
    assert store.append(TOPIC, BATCHES, claim=CLAIM) == {0: 0, 1: 0, 2: 0}
    assert stored(store) == list(BATCHES.values())


def test_a_batch_stored_by_kafka_is_acknowledged_though_the_database_fails(store, clock, monkeypatch):
    def fail(*_args: object) -> None:
        raise Unavailable("The database can't be reached.")

    with monkeypatch.context() as patch:
        patch.setattr(IdempotencyIndex, "settle", fail)
        assert store.append(TOPIC, BATCHES, claim=CLAIM) == {0: 0, 1: 0, 2: 0}
    clock.advance(int(1_000 * WAIT_S) + 20_000)
    assert store.claimed(CLAIM.id) == CLAIM.digest
    assert store.append(TOPIC, BATCHES, claim=CLAIM).duplicates == 5


def test_a_batch_rejected_by_a_closed_topic_leaves_no_key(store, monkeypatch: pytest.MonkeyPatch):
    # A first connection on a busy machine may take longer than a rejection that counts as early.
    monkeypatch.setattr(idempotent_batch, "time", Mock(monotonic=Mock(return_value=0.0)))
    store.close_topic(TOPIC)
    with pytest.raises(TopicClosed):
        store.append(TOPIC, BATCHES, claim=CLAIM)
    assert store.claimed(CLAIM.id) is None
    store.create_topic("next", len(BATCHES))
    assert store.append("next", BATCHES, claim=CLAIM) == {0: 0, 1: 0, 2: 0}


def test_a_batch_without_an_answer_from_kafka_is_stored_once(store, open_store, kafka_cluster: LocalCluster):
    hasty = open_store(append_timeout_s=1.0, clock=SystemClock())
    append_in_the_end(hasty, "before", IdempotencyClaim("before", "digest"))
    (broker,) = kafka_cluster.kafkas
    broker.pause()
    try:
        with pytest.raises(PartiallyStored) as caught:
            hasty.append(TOPIC, {0: events("a")}, claim=CLAIM)
    finally:
        broker.resume()
    assert caught.value.failed == {0: "timed out"}
    append_in_the_end(hasty, "a", CLAIM)
    assert read_all(store, TOPIC, 0) == events("before", "a")


def append_in_the_end(store: KafkaEventStore, event: str, claim: IdempotencyClaim) -> None:
    """Append one event, as often as it takes; a busy machine may not answer in the short time that the store waits."""
    deadline_s = time.monotonic() + 2 * SETTLED_MS / 1_000
    stored = False
    while not stored:
        try:
            stored = store.append(TOPIC, {0: events(event)}, claim=claim) is not None
        except (Unavailable, PartiallyStored):
            assert time.monotonic() < deadline_s
