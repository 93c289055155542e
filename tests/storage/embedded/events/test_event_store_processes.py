import subprocess

import pytest

from rioni.domain.errors import NotFound
from rioni.domain.ports.host import Clock
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from tests.contracts.event_store import events, read_all
from tests.storage.embedded import publisher
from tests.support.waiting import WAIT_S


@pytest.mark.slow
def test_concurrent_appends_of_processes_are_not_lost_or_mixed(directory: DataDirectory, store: EmbeddedEventStore):
    store.create_topic(publisher.TOPIC, publisher.PARTITIONS)
    processes = [
        subprocess.Popen(
            publisher.command(directory.path, f"run-{number}", 4, 40),
            cwd=publisher.ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    acknowledged = publisher.parse("".join(outputs).splitlines())
    assert len(acknowledged) == 3 * 4 * 40 * 2
    publisher.check(store, [0] * publisher.PARTITIONS, acknowledged)
    assert store.verify() == []


def test_a_reader_of_another_process_is_woken_and_sees_what_was_appended(store, other_store, signals):
    store.create_topic("topic", 1)
    watch = signals.watch(["topic:topic"])
    assert other_store.read("topic", 0, 0, 1000) == []
    store.append("topic", {0: events(1)})
    assert watch.wait(WAIT_S)
    assert read_all(other_store, "topic", 0) == events(1)
    assert other_store.bounds("topic")[0].newest == 0
    watch.close()


def test_events_expired_by_another_process_are_not_served_from_the_cache(store, other_store, clock):
    store.create_topic("topic", 1)
    store.append("topic", {0: events(1, 2)})
    assert read_all(store, "topic", 0) == events(1, 2)
    clock.advance(1)
    other_store.append("topic", {0: events(3)})
    other_store.delete_before("topic", clock.now_ms())
    assert [chunk.first for chunk in store.read("topic", 0, 0, 1000)] == [2]


def test_a_topic_recreated_by_another_process_is_not_mixed_with_the_old_one(store, other_store):
    store.create_topic("topic", 2)
    store.append("topic", {0: events("old")})
    assert read_all(store, "topic", 0) == events("old")
    other_store.delete_topic("topic")
    with pytest.raises(NotFound):
        store.read("topic", 0, 0, 1000)
    other_store.create_topic("topic", 1)
    other_store.append("topic", {0: events("new")})
    assert read_all(store, "topic", 0) == events("new")
    with pytest.raises(NotFound):
        store.append("topic", {1: events("old")})
    assert store.append("topic", {0: events("newer")}) == {0: 1}


def test_all_events_can_be_read_after_reopening(directory, signals, clock: Clock):
    for number in range(3):
        store = EmbeddedEventStore(directory.events, clock=clock, signals=signals)
        store.create_topic("topic", 1)
        assert store.append("topic", {0: events(number)}) == {0: number}
        assert read_all(store, "topic", 0) == events(*range(number + 1))
        store.close()
