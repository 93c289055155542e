"""Work that may take minutes is split into many short tasks: one long task would look like a hanging one."""

import re

import pytest

from rioni.domain.ports.host import StorePools
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.storage.embedded.events import retention, stored_once
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from tests.support.clock import ManualClock


TOPIC, BATCHES, FEW = "topic", 20, 4
FOR_EVER_MS = 10**15


class Tasks:
    """Counts the transactions of each task."""

    def __init__(self):
        self.transactions = []

    def __call__(self, function, /, *args, **kwargs):
        self.transactions.append(0)
        return function(*args, **kwargs)


@pytest.fixture
def tasks():
    return Tasks()


@pytest.fixture
def store(tmp_path, tasks, monkeypatch):
    """A store that runs one transaction per task, and few changes per transaction."""
    monkeypatch.setattr(retention, "STEP_S", 0.0)
    monkeypatch.setattr(retention, "REMOVED_CHUNKS", FEW)
    statements = ("_DELETE_EXPIRED_KEYS", "_DELETE_ALL_SUPERSEDED", "_SELECT_SUPERSEDED")
    for module, names in ((retention, statements), (stored_once, ("_DELETE_KEYS",))):
        for name in names:
            monkeypatch.setattr(module, name, re.sub("LIMIT [0-9]+", f"LIMIT {FEW}", getattr(module, name)))
    monkeypatch.setattr(retention, "DELETED_KEYS_MAX", FEW)
    monkeypatch.setattr(stored_once, "DELETED_KEYS_MAX", FEW)
    (tmp_path / "signals").mkdir()
    signals = EmbeddedSignals(tmp_path / "signals")
    store = EmbeddedEventStore(
        tmp_path / "events.db", clock=ManualClock(), signals=signals, pools=StorePools.all(tasks)
    )
    writing = store._database.writing

    def counted():
        if tasks.transactions:
            tasks.transactions[-1] += 1
        return writing()

    monkeypatch.setattr(store._database, "writing", counted)
    store.create_topic(TOPIC, 1)
    for number in range(BATCHES):
        headers = {0: [Headers(key=key) for key in ("same", f"{number}")]}
        store.append(TOPIC, {0: [b"{}", b"{}"]}, headers=headers, claim=IdempotencyClaim(f"{number}", "digest"))
    tasks.transactions.clear()
    yield store
    store.close()
    signals.close()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("delete_before", (TOPIC, FOR_EVER_MS)),
        ("compact", (TOPIC, FOR_EVER_MS)),
        ("delete_topic", (TOPIC,)),
        ("expire_ids", (FOR_EVER_MS,)),
    ],
)
def test_each_task_ends_after_a_transaction(store, tasks, name, arguments):
    getattr(store, name)(*arguments)
    assert len(tasks.transactions) >= BATCHES // FEW
    assert max(tasks.transactions) <= 2, (
        "the last one of a kind finds nothing left, and the first one of another follows"
    )


def test_deleting_a_topic_deletes_its_keys_in_steps(store, tasks):
    store.delete_topic(TOPIC)
    for table in ("partitions", "chunks", "keys", "superseded"):
        assert not store._database.fetch(f"SELECT * FROM {table}")
    removals = BATCHES // FEW
    assert len(tasks.transactions) > 2 * removals, "some for the events, and some for their keys"
