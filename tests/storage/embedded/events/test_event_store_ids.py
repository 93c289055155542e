import subprocess
import sys

import pytest

from rioni.domain.publishing.headers import Headers
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.contracts.event_store import events, read_all, read_headers
from tests.storage.embedded import publisher
from tests.support.clock import ManualClock


KEYS = [Headers(key="a"), Headers(key="b")]


# The clock is read inside the transaction; signals are sent when it is durable and before the caller is answered.
KILLED = """
import os, signal, sys
from pathlib import Path
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.contracts.event_store import events
from tests.storage.embedded.events.test_event_store_ids import KEYS

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

class Clock:
    now_ms = die if sys.argv[2] == "inside" else lambda self: 0

class Signals:
    notify = die

store = EmbeddedEventStore(Path(sys.argv[1]), clock=Clock(), signals=Signals())
store.append("topic", {0: events(1, 2)}, headers={0: KEYS}, ids={0: ["a", "b"]})
"""


@pytest.mark.parametrize(("where", "stored"), [("inside", 0), ("before the answer", 1)])
def test_repeating_an_unanswered_append_stores_each_event_once(directory, store, where: str, stored: int):
    store.create_topic("topic", 1)
    command = [sys.executable, "-c", KILLED, str(directory.events), where]
    assert subprocess.run(command, cwd=publisher.ROOT, check=False).returncode == -9
    assert len(store.read("topic", 0, 0, 1)) == stored
    firsts = store.append("topic", {0: events(1, 2)}, headers={0: KEYS}, ids={0: ["a", "b"]})
    assert firsts == ({} if stored else {0: 0})
    assert read_all(store, "topic", 0) == events(1, 2)
    assert read_headers(store, "topic", 0) == KEYS
    assert store.verify() == []


def test_ids_and_headers_are_shared_with_other_processes_and_survive_opening_again(
    directory, signals, clock: ManualClock, store, other_store
):
    store.create_topic("topic", 1)
    store.append("topic", {0: events(1, 2)}, headers={0: KEYS}, ids={0: ["a", "b"]})
    assert other_store.append("topic", {0: events(3, 1)}, headers={0: KEYS[::-1]}, ids={0: ["c", "a"]}) == {0: 2}
    again = EmbeddedEventStore(directory.events, clock=clock, signals=signals)
    assert again.append("topic", {0: events(3, 2, 4)}, ids={0: ["c", "b", "d"]}) == {0: 3}
    again.expire_ids(clock.now_ms() + 1)
    again.close()
    assert store.append("topic", {0: events(1)}, ids={0: ["a"]}) == {0: 4}
    for each in (store, other_store):
        assert read_all(each, "topic", 0) == events(1, 2, 3, 4, 1)
        assert read_headers(each, "topic", 0)[:3] == [*KEYS, KEYS[1]]


# Every process publishes the same events, in its own order.
PUBLISHER = """
import random, sys
from pathlib import Path
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.contracts.event_store import events
from tests.storage.embedded.events.test_event_store_faults import NoSignals

store = EmbeddedEventStore(Path(sys.argv[1]), clock=SystemClock(), signals=NoSignals())
names = [str(number) for number in range(300)]
random.Random(sys.argv[2]).shuffle(names)
for index in range(0, 300, 5):
    batch = names[index : index + 5]
    store.append("topic", {0: events(*batch)}, ids={0: batch})
store.close()
"""


def test_events_published_by_several_processes_at_once_are_stored_once_each(directory, store):
    store.create_topic("topic", 1)
    processes = [
        subprocess.Popen([sys.executable, "-c", PUBLISHER, str(directory.events), seed], cwd=publisher.ROOT)
        for seed in "abc"
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert sorted(read_all(store, "topic", 0)) == sorted(events(*range(300)))
