"""The storages of type kafka with what the registry says about them, and their stores, opened to be read only."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Engine

from rioni.config.settings import Config
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.notifier import Waiter
from rioni.domain.system.storages import KAFKA, StorageEntry
from rioni.domain.timelines.timeline import Timeline
from rioni.installation.database import reading_models
from rioni.projections.queries.states import all_states
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.factory import opener


class KafkaStorage(NamedTuple):
    """A storage of type kafka."""

    storage: StorageEntry
    timelines: Mapping[str, Timeline]
    """The readable timelines in it, by topic."""
    compacted: frozenset[str]
    """The topics whose records Kafka removes by compaction."""


def kafka_storages(engine: Engine) -> list[KafkaStorage]:
    """Return the storages of type kafka, by id; blocks on the registry's database; raises Unavailable."""
    storages: dict[str, StorageEntry] = {}
    timelines: list[Timeline] = []
    kept: set[str] = set()
    with reading_models(engine) as connection:
        for kind, key, state in all_states(connection):
            if kind == "storage" and state.storage_type == KAFKA:
                storages[key] = state
            elif kind == "timeline":
                timelines += state.readable
            elif kind == "event-type" and state.cleanup_policy == "delete":
                kept.add(key)
    found = []
    for storage_id, storage in sorted(storages.items()):
        own = {each.topic: each for each in timelines if each.storage_id == storage_id}
        compacted = frozenset(topic for topic, each in own.items() if each.event_type not in kept)
        found.append(KafkaStorage(storage, own, compacted))
    return found


def opener_for_reading(config: Config) -> Callable[[StorageEntry], EventStore]:
    """Return a function that opens the store of a storage of type kafka; raises as `factory.opener`."""
    return opener(
        config.kafka,
        config.kafka_options,
        database=None,
        request_timeout_s=config.kafka_request_timeout_s,
        clock=SystemClock(),
        signals=_NoSignals(),
    )


class _NoSignals:
    """Notifies nobody: a store that only reads has nothing to tell."""

    def notify(self, *keys: str) -> None:
        """Do nothing."""

    def watch(self, keys: Iterable[str]) -> Waiter:
        """Raise: nothing is watched here."""
        raise NotImplementedError(f"{[*keys]} can't be watched without a broker")

    def version(self, key: str) -> int:  # noqa: ARG002 - of the port
        """Return 0: nothing changes."""
        return 0
