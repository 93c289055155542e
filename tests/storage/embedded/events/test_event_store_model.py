import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rioni.domain.errors import NotFound
from rioni.domain.publishing.headers import NO_HEADERS, Headers
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import CacheMemory
from tests.contracts.event_store import read_all, read_headers
from tests.support.campaigns import length
from tests.support.clock import ManualClock


TOPICS = st.sampled_from(["one", "two"])
NUMBERS = st.integers(0, 3)
EVENTS = st.lists(
    st.binary(min_size=1, max_size=300).map(lambda data: b'"%s"' % data.hex().encode()), min_size=1, max_size=8
)
STORES = st.integers(0, 1)
IDS = st.integers(0, 30).map(str)
HEADERS = st.builds(Headers, key=st.none() | st.just("key"), avro=st.none() | st.binary(max_size=5))


class ModelPartition:
    """The times and events of chunks, and how many events have expired."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.headers: list[Headers] = []
        self.times: list[int] = []
        self.oldest = 0


class EventStoreMachine(RuleBasedStateMachine):
    """Two stores of one file, with a small cache and with none, compared with dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.signals = EmbeddedSignals(Path(self.directory.name))
        self.topics: dict[str, list[ModelPartition]] = {}
        self.ids: dict[str, int] = {}
        self.stores: list[EmbeddedEventStore] = []

    def open(self, number: int) -> EmbeddedEventStore:
        path = Path(self.directory.name) / "events.db"
        return EmbeddedEventStore(
            path, clock=self.clock, signals=self.signals, cache_memory=CacheMemory([5000, 0][number])
        )

    @initialize()
    def begin(self):
        self.stores = [self.open(0), self.open(1)]

    @rule(number=STORES)
    def reopen(self, number: int):
        self.stores[number].close()
        self.stores[number] = self.open(number)

    @rule(number=STORES, topic=TOPICS, partitions=st.integers(1, 3))
    def create(self, number: int, topic: str, partitions: int):
        if topic not in self.topics:
            self.stores[number].create_topic(topic, partitions)
            self.topics[topic] = [ModelPartition() for _ in range(partitions)]

    @rule(number=STORES, topic=TOPICS)
    def delete(self, number: int, topic: str):
        self.stores[number].delete_topic(topic)
        self.topics.pop(topic, None)

    @rule(number=STORES, topic=TOPICS, batches=st.dictionaries(NUMBERS, EVENTS, min_size=1, max_size=3))
    def append(self, number: int, topic: str, batches: dict[int, list[bytes]]):
        partitions = self.topics.get(topic, [])
        if any(partition >= len(partitions) for partition in batches):
            with pytest.raises(NotFound):
                self.stores[number].append(topic, batches)
            return
        firsts = self.stores[number].append(topic, batches)
        assert firsts == {each: len(partitions[each].events) for each in batches}
        for each, events in batches.items():
            partitions[each].events += events
            partitions[each].headers += [NO_HEADERS] * len(events)
            at_ms = max([self.clock.now_ms(), *partitions[each].times[-1:]])
            partitions[each].times += [at_ms] * len(events)

    @rule(number=STORES, topic=TOPICS, data=st.data())
    def append_with_headers_and_ids(self, number: int, topic: str, data: st.DataObject):
        wanted = st.lists(st.tuples(IDS, HEADERS), min_size=1, max_size=5)
        batches = data.draw(st.dictionaries(NUMBERS, wanted, min_size=1, max_size=2))
        events = {
            each: [b'"%s"' % name.encode() if headers.key is None else b"" for name, headers in batch]
            for each, batch in batches.items()
        }
        call = {
            "headers": {each: [headers for _, headers in batch] for each, batch in batches.items()},
            "ids": {each: [name for name, _ in batch] for each, batch in batches.items()},
        }
        partitions = self.topics.get(topic, [])
        if any(partition >= len(partitions) for partition in batches):
            with pytest.raises(NotFound):
                self.stores[number].append(topic, events, **call)
            return
        firsts = {}
        for each, batch in batches.items():
            partition = partitions[each]
            at_ms = max([self.clock.now_ms(), *partition.times[-1:]])
            for (name, headers), event in zip(batch, events[each], strict=True):
                if name not in self.ids:
                    firsts.setdefault(each, len(partition.events))
                    self.ids[name] = self.clock.now_ms()
                    partition.events.append(event)
                    partition.headers.append(headers)
                    partition.times.append(at_ms)
        assert self.stores[number].append(topic, events, **call) == firsts

    @rule(number=STORES, age_ms=st.integers(-50, 200))
    def forget_ids(self, number: int, age_ms: int):
        before_ms = self.clock.now_ms() - age_ms
        kept = {name: at_ms for name, at_ms in self.ids.items() if at_ms >= before_ms}
        self.stores[number].expire_ids(before_ms)
        self.ids = kept

    @rule(ms=st.integers(-20, 100))
    def advance(self, ms: int):
        self.clock.advance(ms)

    @precondition(lambda self: self.topics)
    @rule(number=STORES, data=st.data(), age_ms=st.integers(-50, 200))
    def expire(self, number: int, data: st.DataObject, age_ms: int):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        before_ms = self.clock.now_ms() - age_ms
        removed = 0
        for partition in self.topics[topic]:
            kept = sum(at_ms >= before_ms for at_ms in partition.times[partition.oldest :])
            oldest = len(partition.events) - kept
            removed += oldest - partition.oldest
            partition.oldest = oldest
        assert self.stores[number].delete_before(topic, before_ms) == removed

    @precondition(lambda self: self.topics)
    @rule(number=STORES, data=st.data(), bytes_max=st.integers(0, 3000))
    def read(self, number: int, data: st.DataObject, bytes_max: int):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        each = data.draw(st.integers(0, len(self.topics[topic]) - 1))
        partition = self.topics[topic][each]
        first = data.draw(st.integers(0, len(partition.events) + 1))
        found = read_all(self.stores[number], topic, each, first, bytes_max)
        assert found == partition.events[max(first, partition.oldest) :]
        assert read_headers(self.stores[number], topic, each, partition.oldest) == partition.headers[partition.oldest :]

    @precondition(lambda self: self.topics)
    @rule(number=STORES, data=st.data(), age_ms=st.integers(-50, 200))
    def first_since(self, number: int, data: st.DataObject, age_ms: int):
        topic = data.draw(st.sampled_from(sorted(self.topics)))
        each = data.draw(st.integers(0, len(self.topics[topic]) - 1))
        partition = self.topics[topic][each]
        at_ms = self.clock.now_ms() - age_ms
        younger = sum(time >= at_ms for time in partition.times[partition.oldest :])
        assert self.stores[number].offset_at_time(topic, each, at_ms) == len(partition.events) - younger

    @invariant()
    def bounds_agree(self):
        for store in self.stores:
            for topic, partitions in self.topics.items():
                expected = [(partition.oldest, len(partition.events) - 1) for partition in partitions]
                assert [tuple(bounds) for bounds in store.bounds(topic)] == expected

    def teardown(self):
        damage = [each for store in self.stores for each in store.verify()]
        for store in self.stores:
            store.close()
        self.signals.close()
        self.directory.cleanup()
        assert not damage


TestEventStoreMachine = EventStoreMachine.TestCase
TestEventStoreMachine.settings = settings(max_examples=length(20, 1_000), stateful_step_count=30, deadline=None)
TestEventStoreMachine.pytestmark = [pytest.mark.nightly]
