from collections.abc import Iterator
from pathlib import Path

import pytest

from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals, SharedChangeFlags
from rioni.storage.event_stores import CacheMemory
from tests.support.clock import ManualClock


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with DataDirectory(tmp_path / "data") as directory:
        yield directory


@pytest.fixture
def signals(directory: DataDirectory) -> Iterator[EmbeddedSignals]:
    signals = EmbeddedSignals(directory.signals, directory.changes)
    yield signals
    signals.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(directory: DataDirectory, signals: EmbeddedSignals, clock: ManualClock) -> Iterator[EmbeddedEventStore]:
    store = EmbeddedEventStore(directory.events, clock=clock, signals=signals)
    yield store
    store.close()


@pytest.fixture
def other_store(directory: DataDirectory, signals: EmbeddedSignals, clock: ManualClock) -> Iterator[EmbeddedEventStore]:
    """A second store of the same file, with its own caches and connections, as in another process."""
    store = EmbeddedEventStore(directory.events, clock=clock, signals=signals, cache_memory=CacheMemory(0))
    yield store
    store.close()


@pytest.fixture
def flags(directory: DataDirectory) -> SharedChangeFlags:
    """Flags for changes by the processes of the directory."""
    return directory.changes
