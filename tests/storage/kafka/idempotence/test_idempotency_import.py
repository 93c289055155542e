"""Importing the idempotency keys and event ids of one store into the index of another database."""

import contextlib

import pytest

from rioni.domain.errors import Conflict
from rioni.domain.publishing.headers import IdempotencyClaim
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.idempotence.idempotency_import import import_keys, of_embedded, of_kafka
from rioni.storage.kafka.idempotence.idempotency_index import (
    NAME_TABLES,
    Attempt,
    IdempotencyIndex,
    IdempotencyKey,
    IndexEntry,
)
from rioni.storage.sql.engines import create_engine, writing
from tests.support.clock import ManualClock


pytestmark = pytest.mark.postgres

STORE = "default"
TOPIC = "topic"


@pytest.fixture
def clock():
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def embedded(tmp_path, clock):
    """The database of an embedded store with some deduplicated appends."""
    path = tmp_path / "events.db"
    (tmp_path / "signals").mkdir()
    signals = EmbeddedSignals(tmp_path / "signals")
    with (
        contextlib.closing(signals),
        contextlib.closing(EmbeddedEventStore(path, clock=clock, signals=signals)) as store,
    ):
        store.create_topic(TOPIC, 1)
        store.append(TOPIC, {0: [b"{}"]}, claim=IdempotencyClaim("batch", "digest"))
        clock.advance(1_000)
        store.append(TOPIC, {0: [b"{}", b"{}"]}, ids={0: ["a", "b"]})
    with contextlib.closing(EventsDatabase(path)) as database:
        yield database


@pytest.fixture
def sqlite(tmp_path):
    """Creates databases with the tables of the idempotency index."""
    with contextlib.ExitStack() as stack:

        def make(name):
            engine = create_engine(f"sqlite:///{tmp_path / name}")
            stack.callback(engine.dispose)
            with writing(engine) as connection:
                NAME_TABLES.create_all(connection)
            return engine

        yield make


def begin(names, attempt_id, *claims):
    """Record that a batch is handed to Kafka under each of some keys."""
    attempt = Attempt(id=attempt_id, begun_ms=1, topic=TOPIC, counts={0: 1}, indexes={0: [0]})
    names.begin([(attempt, [IdempotencyKey(names.batch(each), "digest", (0, 0)) for each in claims], None)])


def test_keys_of_an_embedded_store_are_known_as_if_stored_in_kafka(embedded, postgres_engine, clock):
    import_keys(postgres_engine, STORE, of_embedded(embedded, postgres_engine, STORE))
    index = IdempotencyIndex(postgres_engine, STORE)
    batch, a, b = index.batch("batch"), index.event("a"), index.event("b")
    stored = {batch: IndexEntry("digest", None), a: IndexEntry(None, None), b: IndexEntry(None, None)}
    assert index.known([batch, a, b, index.event("c"), index.batch("a")]) == stored
    index.delete_before(clock.now_ms())
    assert index.known([batch, a, b]).keys() == {a, b}, "they are forgotten when they would have been"


def test_another_store_does_not_know_imported_keys(embedded, postgres_engine):
    import_keys(postgres_engine, STORE, of_embedded(embedded, postgres_engine, STORE))
    others = IdempotencyIndex(postgres_engine, "other")
    assert others.known([others.batch("batch"), others.event("a")]) == {}


def test_an_index_in_another_database_is_copied_with_its_unfinished_attempts(sqlite, postgres_engine):
    here = sqlite("names.db")
    begin(IdempotencyIndex(here, STORE), b"a" * 16, "batch")
    begin(IdempotencyIndex(here, "other"), b"b" * 16, "batch")
    import_keys(postgres_engine, STORE, *of_kafka(here, STORE))
    index = IdempotencyIndex(postgres_engine, STORE)
    assert index.known([index.batch("batch")]) == {index.batch("batch"): IndexEntry("digest", b"a" * 16)}
    assert [each.id for each in index.unfinished(10)] == [b"a" * 16]


def test_an_earlier_incomplete_import_is_replaced(embedded, postgres_engine):
    index, others = IdempotencyIndex(postgres_engine, STORE), IdempotencyIndex(postgres_engine, "other")
    begin(index, b"a" * 16, "early")
    begin(others, b"b" * 16, "early")
    for _ in range(2):
        import_keys(postgres_engine, STORE, of_embedded(embedded, postgres_engine, STORE))
    assert index.known([index.batch("early")]) == {}
    assert index.unfinished(10) == []
    assert len(others.unfinished(10)) == 1


def test_keys_that_differ_after_the_import_are_detected(embedded, postgres_engine):
    reads = []

    def pages():
        reads.append(1)
        for rows in of_embedded(embedded, postgres_engine, STORE)():
            yield [row | {"recorded_at_ms": row["recorded_at_ms"] + len(reads)} for row in rows]

    with pytest.raises(Conflict, match="differ from the source after migration"):
        import_keys(postgres_engine, STORE, pages)


def test_additional_keys_after_the_import_are_detected(embedded, postgres_engine):
    reads = []

    def pages():
        reads.append(1)
        whole = list(of_embedded(embedded, postgres_engine, STORE)())
        return iter(whole if len(reads) == 1 else whole[1:])

    with pytest.raises(Conflict, match="more idempotency keys than the source"):
        import_keys(postgres_engine, STORE, pages)
