"""The events that compaction removes, and those that it must keep: reference timelines#compaction."""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rioni.domain.publishing.headers import COMPACTED, Headers
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import CacheMemory
from tests.contracts.compaction import CompactionContract
from tests.contracts.event_store import TOPIC, events, read_all, read_headers
from tests.support.clock import ManualClock
from tests.support.waiting import WAIT_S


class TestEmbeddedCompaction(CompactionContract):
    pass


EVENT = st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans())
"""A key, None for no key, and whether it is a tombstone, if it has a key."""
STEP = st.one_of(
    st.lists(EVENT, min_size=1, max_size=6).map(lambda events: ("append", events)),
    st.integers(0, 30).map(lambda lag: ("compact", lag)),
    st.just(("reopen", None)),
)


def superseded(history, before_ms):
    """The positions that a compaction removes: old tombstones, and events superseded before a time."""
    return {
        position
        for position, (key, deletion, at_ms) in enumerate(history)
        if key is not None
        and (
            (deletion and at_ms < before_ms)
            or any(other == key and later_ms < before_ms for other, _, later_ms in history[position + 1 :])
        )
    }


@given(st.lists(STEP, max_size=12))
def test_only_superseded_events_and_tombstones_are_removed(steps):
    """Reference timelines#compacted-events, timelines#deletions."""
    with tempfile.TemporaryDirectory() as folder:
        clock = ManualClock()
        signals = EmbeddedSignals(Path(folder))

        def opened():
            return EmbeddedEventStore(
                Path(folder) / "events.db", clock=clock, signals=signals, cache_memory=CacheMemory(1_000)
            )

        store = opened()
        store.create_topic(TOPIC, 1)
        history: list[tuple[str | None, bool, int]] = []
        gone: set[int] = set()
        for kind, what in steps:
            if kind == "append":
                first = len(history)
                history += [(key, deletion and key is not None, clock.now_ms()) for key, deletion in what]
                some = history[first:]
                events = [
                    b"" if deletion else b"%d" % position for position, (_, deletion, _) in enumerate(some, first)
                ]
                store.append(TOPIC, {0: events}, headers={0: [Headers(key=key) for key, *_ in some]})
                clock.advance(len(what) % 2 * 10)
            elif kind == "compact":
                before_ms = clock.now_ms() - what
                expected = superseded(history, before_ms)
                assert store.compact(TOPIC, before_ms) == len(expected - gone)
                gone |= expected
            else:
                store.close()
                store = opened()
            kept = [
                b"" if deletion or position in gone else b"%d" % position
                for position, (_, deletion, _) in enumerate(history)
            ]
            assert read_all(store, TOPIC, 0) == kept
        assert not store.verify()
        store.close()
        signals.close()


def test_removed_events_take_no_space_and_keep_their_positions(tmp_path):
    clock = ManualClock()
    signals = EmbeddedSignals(tmp_path)
    store = EmbeddedEventStore(tmp_path / "events.db", clock=clock, signals=signals)
    store.create_topic(TOPIC, 1)
    for _ in range(50):
        store.append(TOPIC, {0: [b"x" * 1_000] * 10}, headers={0: [Headers(key=f"k{n}", avro=b"y") for n in range(10)]})
    assert store.compact(TOPIC, clock.now_ms() + 1) == 490
    assert sum(len(chunk.data) for chunk in store.read(TOPIC, 0, 0, 10**6)) < 10 * 1_000 + 600
    assert read_headers(store, TOPIC, 0)[:490] == [COMPACTED] * 490
    assert not store.verify()
    store.close()
    signals.close()


COMPACT = """
import sys
from pathlib import Path
from rioni.domain.ports.host import direct
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.events.retention import compact
from rioni.storage.embedded.events.retention import in_steps

database = EventsDatabase(Path(sys.argv[1]))
print(sum(in_steps(direct, compact(database, "topic", 2**60)).values()))
database.close()
"""


def test_events_compacted_by_another_process_are_not_served_from_the_cache(
    store: EmbeddedEventStore, directory: DataDirectory, signals: EmbeddedSignals, clock: ManualClock
):
    store.create_topic("topic", 1)
    store.append("topic", {0: events(1, 2)}, headers={0: [Headers(key="a"), Headers(key="b")]})
    store.append("topic", {0: events(3)}, headers={0: [Headers(key="a")]})
    other = EmbeddedEventStore(directory.events, clock=clock, signals=signals)
    with contextlib.closing(other):
        # One process has appended them, and the other one read them: both have them in memory.
        for each in (store, other):
            assert read_all(each, "topic", 0) == events(1, 2, 3)
        command = [sys.executable, "-c", COMPACT, str(directory.events)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_S)
        assert done.stdout == "1\n"
        for each in (store, other):
            assert read_all(each, "topic", 0) == [b"", *events(2, 3)]
        assert other.compact("topic", 2**60) == 0
