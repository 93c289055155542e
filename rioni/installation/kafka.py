"""The Kafka clusters of an installation: whether they match its registry, and their stores opened to be read only."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import structlog
from sqlalchemy import Engine

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.host import Waiter
from rioni.domain.system.storages import KAFKA, StorageEntry
from rioni.domain.timelines.timeline import Timeline
from rioni.installation.database import reading_models
from rioni.installation.stores import counted, least_ends, registered, short_partitions, shown
from rioni.storage.clock import SystemClock
from rioni.storage.kafka.factory import inspected, opener
from rioni.storage.sql.engines import reading
from rioni.storage.sql.store_marks import accepted_mark, cluster_mark, ends_of, read_marks


# --- Checks that the Kafka clusters of an installation match its registry ---

REACH_S = 5.0
"""Timeout for reaching a cluster; an unreachable one is not compared."""
ANSWER_S = 30.0
"""Timeout for reading the ends of its topics."""
CONFIRM_S = 3.0
"""Seconds that a mismatch has to persist: brokers see topics late, and event types may be deleted meanwhile."""
CONFIRM_EVERY_S = 0.5

_log = structlog.get_logger("rioni.installation")


class Compared(NamedTuple):
    """Result of the comparison of one storage."""

    storage_id: str
    cluster_id: str
    findings: Sequence[str] = ()
    """A sentence for each mismatch."""
    missing: Sequence[Timeline] = ()
    """The timelines whose topics do not exist."""
    damaged: Sequence[Timeline] = ()
    """The timelines that may have lost events, including the missing ones."""


class KafkaComparison(NamedTuple):
    """Result of the comparison of all storages of type kafka."""

    storages: Sequence[Compared]
    unreachable: Mapping[str, Unavailable]
    """The reason why a storage was not compared, by its id."""

    @property
    def findings(self) -> list[str]:
        """A sentence for each mismatch."""
        return [finding for each in self.storages for finding in each.findings]

    def check_reached(self) -> None:
        """Raise Unavailable if a storage was not compared."""
        for storage_id, reason in self.unreachable.items():
            raise Unavailable(f"Storage {storage_id}: {reason}") from reason

    def warn_unreachable(self) -> None:
        """Log the storages that were not compared."""
        for storage_id, reason in self.unreachable.items():
            _log.warning("Kafka was not compared with the registry", storage_id=storage_id, reason=str(reason))


def compare_kafka(config: Config, engine: Engine) -> KafkaComparison:
    """Compare all storages of type kafka with the registry and its marks; blocks on the database and on Kafka.

    Args:
        config: the settings.
        engine: of the registry's database, with the current schema.

    Raises:
        Unavailable: the database can't be read.
    """
    deadline_s = time.monotonic() + CONFIRM_S
    while True:
        compared = _compare(config, engine)
        if not compared.findings or time.monotonic() >= deadline_s:
            return compared
        time.sleep(CONFIRM_EVERY_S)


def _compare(config: Config, engine: Engine) -> KafkaComparison:
    with reading(engine) as connection:
        marks, known = read_marks(connection), registered(connection)
    compared: list[Compared] = []
    unreachable: dict[str, Unavailable] = {}
    for storage_id, own in known.in_storages(KAFKA).items():
        if own:
            try:
                compared.append(_compare_storage(config, known.storages[storage_id], own, marks))
            except Unavailable as ex:
                unreachable[storage_id] = ex
    return KafkaComparison(compared, unreachable)


def _compare_storage(
    config: Config, storage: StorageEntry, timelines: Sequence[Timeline], marks: Mapping[str, str]
) -> Compared:
    least = {each.topic: _least_ends(each, marks) for each in timelines}
    found = inspected(
        storage,
        config.kafka,
        config.kafka_options,
        topics=list(least),
        ended=[topic for topic, ends in least.items() if any(ends)],
        reach_s=min(REACH_S, config.kafka_request_timeout_s),
        timeout_s=ANSWER_S,
    )
    missing = [each for each in timelines if each.topic not in found.partitions]
    behind: list[str] = []
    damaged = list(missing)
    for timeline in timelines:
        if (count := found.partitions.get(timeline.topic)) is not None:
            said, known = found.ends.get(timeline.topic, {}), least[timeline.topic]
            # The end of a partition without a leader is unknown.
            ends = [said.get(number, known[number]) for number in range(min(count, len(known)))]
            if short := list(short_partitions(timeline, known, ends)):
                behind += short
                damaged.append(timeline)
    where = f"Storage {storage.id}"
    if marks.get(cluster_mark(storage.id), found.cluster_id) != found.cluster_id:
        finding = (
            f"{where}: Kafka at {storage.configuration.get('bootstrap_servers', config.kafka)} is another cluster, "
            f"{found.cluster_id}; the events were stored in {marks[cluster_mark(storage.id)]}."
        )
        # Even a copy of the lost cluster may lack the last events, and assign their positions again.
        active = [each for each in timelines if each.latest_position is None and each not in damaged]
        return Compared(storage.id, found.cluster_id, [finding], missing, damaged + active)
    findings = []
    if names := sorted({each.event_type for each in missing}):
        findings.append(f"{where}: Kafka lacks the topics of {counted(len(names), 'event type')}: {shown(names)}.")
    if behind:
        findings.append(
            f"{where}: in Kafka {counted(len(behind), 'partition')} end before the last recorded position: "
            f"{shown(behind)}."
        )
    return Compared(storage.id, found.cluster_id, findings, missing, damaged)


def _least_ends(timeline: Timeline, marks: Mapping[str, str]) -> list[int]:
    """Return the minimum next position of each partition."""
    # An operator may have accepted an earlier end of a closed topic.
    accepted = marks.get(accepted_mark(timeline.topic))
    return least_ends(timeline, marks) if accepted is None else ends_of(accepted)


# The storages of type kafka with their timelines in the registry, and their stores, opened for reading only.


class KafkaStorage(NamedTuple):
    """A storage of type kafka."""

    storage: StorageEntry
    timelines: Mapping[str, Timeline]
    """The readable timelines in it, by topic."""
    compacted: frozenset[str]
    """The topics whose records Kafka removes by compaction."""


def kafka_storages(engine: Engine) -> list[KafkaStorage]:
    """Return the storages of type kafka, by id; blocks on the registry's database; raises Unavailable."""
    with reading_models(engine) as connection:
        known = registered(connection)
    found = []
    for storage_id, own in known.in_storages(KAFKA).items():
        compacted = frozenset(each.topic for each in own if each.event_type not in known.uncompacted)
        found.append(KafkaStorage(known.storages[storage_id], {each.topic: each for each in own}, compacted))
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
    """Notifies nobody: a store that only reads has nothing to report."""

    def notify(self, *keys: str) -> None:
        """Do nothing."""

    def watch(self, keys: Iterable[str]) -> Waiter:
        """Raise: nothing is watched here."""
        raise NotImplementedError(f"{[*keys]} can't be watched without a broker")

    def version(self, key: str) -> int:  # noqa: ARG002 - of the port
        """Return 0: nothing changes."""
        return 0
