"""The process dies at any point of a compaction, or of retention, and restarts: required events are still stored."""

import contextlib
import itertools
import shutil
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from pytest import MonkeyPatch  # noqa: PT013 - what stands in for fixtures here

from rioni.domain.publishing.headers import COMPACTED, Headers
from rioni.storage.embedded.events import retention
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import CacheMemory
from tests.contracts.event_store import TOPIC, read_all, read_headers
from tests.support.campaigns import length
from tests.support.clock import ManualClock
from tests.support.processes import ProcessDied


EVENTS = st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans()), min_size=3, max_size=9)
"""Keys, None for no key, and whether it is a tombstone, if it has a key."""
PARTITIONS = 2
STEPS_MAX = 30
FEW = 3
"""The number of events that one transaction removes here: a compaction takes several."""


class Model:
    """The events that were stored in a partition, and those of them that must be kept."""

    def __init__(self):
        self.events = []
        """The key, whether it is a tombstone, and when it was stored."""
        self.oldest = 0
        self.may_be_gone, self.gone = set(), set()
        """The positions that compactions were to remove, and those that they had removed when they ended."""

    def superseded(self, before_ms):
        """The positions that a compaction up to this time removes: tombstones, and events superseded by their key."""
        times = defaultdict(lambda: sys.maxsize)
        for position, (key, deletion, at_ms) in reversed([*enumerate(self.events)]):
            if key is not None:
                if min(at_ms if deletion else sys.maxsize, times[key]) < before_ms:
                    yield position
                times[key] = min(times[key], at_ms)


class Compaction(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.folders = (self.root / f"life-{life}" for life in itertools.count())
        self.clock = ManualClock()
        self.signals = EmbeddedSignals(self.root)
        self.partitions = [Model() for _ in range(PARTITIONS)]
        self.patch = MonkeyPatch()
        few = retention._SELECT_SUPERSEDED.replace(str(retention.COMPACTED_EVENTS), str(FEW))
        self.patch.setattr(retention, "_SELECT_SUPERSEDED", few)

    @initialize()
    def begin(self):
        self.folder = next(self.folders)
        self.folder.mkdir()
        self.open()
        self.store.create_topic(TOPIC, PARTITIONS)

    def open(self):
        """Open the store in two processes, of which one only reads, and caches what it has read."""
        path = self.folder / "events.db"
        opened = [
            EmbeddedEventStore(path, clock=self.clock, signals=self.signals, cache_memory=CacheMemory(size))
            for size in (0, 10**6)
        ]
        self.store, self.reader = opened
        for each in opened:  # the machine does not lose power in this test
            each._database._writer.execute("PRAGMA synchronous = OFF")

    def close(self):
        self.store.close()
        self.reader.close()

    # --- actions ---

    @rule(number=st.integers(0, PARTITIONS - 1), events=EVENTS, after_ms=st.integers(0, 20))
    def append(self, number, events, after_ms):
        self.clock.advance(after_ms)
        model = self.partitions[number]
        stored = [(key, deletion and key is not None, self.clock.now_ms()) for key, deletion in events]
        texts = [b"" if deletion else b"%d" % place for place, (_, deletion, _) in enumerate(stored, len(model.events))]
        self.store.append(TOPIC, {number: texts}, headers={number: [Headers(key=key) for key, *_ in stored]})
        model.events += stored

    @rule(lag_ms=st.sampled_from([-1, 0, 10, 40]), lives=st.integers(-1, STEPS_MAX))
    def compact(self, lag_ms, lives):
        before_ms = self.clock.now_ms() - lag_ms
        for model in self.partitions:
            model.may_be_gone.update(model.superseded(before_ms))
        with self.dying(lives):
            self.store.compact(TOPIC, before_ms)
            for model in self.partitions:
                model.gone.update(model.superseded(before_ms))

    @rule(age_ms=st.integers(20, 100), lives=st.integers(-1, STEPS_MAX))
    def expire(self, age_ms, lives):
        before_ms = self.clock.now_ms() - age_ms
        with self.dying(lives):
            self.store.delete_before(TOPIC, before_ms)
        for model, bounds in zip(self.partitions, self.store.bounds(TOPIC), strict=True):
            young = sum(at_ms >= before_ms for *_, at_ms in model.events[model.oldest :])
            assert model.oldest <= bounds.oldest <= len(model.events) - young
            assert lives != -1 or bounds.oldest == len(model.events) - young
            model.oldest = bounds.oldest

    @rule()
    def start_again(self):
        self.close()
        self.open()

    @contextlib.contextmanager
    def dying(self, lives):
        """Die after `lives` steps, if there are that many: only what is on the disk by then is left."""
        left = itertools.count(lives, -1)

        def step():
            if next(left) == 0:
                self.folder = shutil.copytree(self.folder, next(self.folders))
                raise ProcessDied

        database = self.store._database
        database.writing = Watched(database.writing, step)
        try:
            yield
        except ProcessDied:
            self.close()
            self.open()
        else:
            del database.writing

    # --- invariants ---

    @invariant()
    def required_events_are_stored(self):
        if not hasattr(self, "store"):
            return
        for number, model in enumerate(self.partitions):
            removed = self.removed(self.store, number, model)
            assert model.gone <= removed | {*range(model.oldest)}, "it was to go"
            for position in removed:
                key, deletion, _ = model.events[position]
                before = {place for place in range(model.oldest, position) if model.events[place][0] == key}
                assert not deletion or before <= removed, "what was deleted came back"
            self.removed(self.reader, number, model)

    def removed(self, store, number, model):
        """The positions that were removed; checks that all others are unchanged, and that required ones are stored."""
        texts, headers = (read(store, TOPIC, number, model.oldest) for read in (read_all, read_headers))
        assert len(texts) == len(headers) == len(model.events) - model.oldest
        removed = {place for place, each in enumerate(headers, model.oldest) if each == COMPACTED}
        assert removed <= model.may_be_gone, "it must stay"
        for position, text, beside in zip(itertools.count(model.oldest), texts, headers, strict=False):
            key, deletion, _ = model.events[position]
            if position in removed:
                assert text == b""
            else:
                assert (text, beside.key) == (b"" if deletion else b"%d" % position, key)
        return removed

    def teardown(self):
        if hasattr(self, "store"):
            assert not self.store.verify()
            self.compact(lag_ms=-1, lives=-1)
            self.required_events_are_stored()
            self.close()
        self.patch.undo()
        self.signals.close()
        shutil.rmtree(self.root)


class Watched:
    """The transactions of a database, with a step before and after each, and each of their statements."""

    def __init__(self, writing, step):
        self._writing, self._step = writing, step

    @contextlib.contextmanager
    def __call__(self):
        self._step()
        with self._writing() as connection:
            yield Statements(connection, self._step)
        self._step()


class Statements:
    def __init__(self, connection, step):
        self._connection, self._step = connection, step

    def __getattr__(self, name):
        def execute(*args):
            result = getattr(self._connection, name)(*args)
            self._step()
            return result

        return execute


TestCompaction = Compaction.TestCase
TestCompaction.settings = settings(max_examples=length(15, 2_000), stateful_step_count=20, deadline=None)
TestCompaction.pytestmark = [pytest.mark.nightly]
