"""Migrates a data directory to a cluster: log, events and cursors. Resumable.

The last write marks the storages as moved to Kafka. Until then the cluster's nodes serve no events. Just before it, the
data directory is marked as migrated. Before, its broker can be started again, as if the migration had not been tried;
afterwards it refuses to start, so that no event is accepted in a place that nobody reads.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rioni.commands.system.storages import MoveStorage
from rioni.config.settings import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.hash_chain import LogHead
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.host import examine
from rioni.domain.publishing.headers import Headers
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.domain.timelines.position import Bounds, EventTypePartition
from rioni.domain.timelines.timeline import Timeline
from rioni.installation.database import command_identity, database_engine, database_lease, database_url
from rioni.installation.infrastructure import Infrastructure, build_infrastructure, catch_up
from rioni.projections.tables import TRACKING_NAME
from rioni.server.startup import prepare_startup
from rioni.storage.embedded.data_directory import MigrationMark, read_mark, write_mark
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.kafka.factory import event_importer, opener
from rioni.storage.kafka.idempotence.idempotency_import import import_keys, of_embedded, of_kafka
from rioni.storage.log.event_log import copy_followers, copy_log
from rioni.storage.log.verification import verify
from rioni.storage.sql.engines import create_engine, reading
from rioni.storage.sql.migration import upgrade
from rioni.storage.sql.store_marks import entry_hash


if TYPE_CHECKING:
    from rioni.projections.generations.rebuilds import Progress
    from rioni.storage.kafka.event_import import EventImporter


READ_BYTES = 4_000_000
RESET_S = 10.0


class MigrationReport(NamedTuple):
    """Result of a migration."""

    head: LogHead
    """The head of the migrated log; the cluster's entries follow it."""
    events: int
    subscriptions: int


def migrate(data: Path, target: Config, progress: "Progress") -> MigrationReport:
    """Migrate a data directory to a cluster, and compare both; blocks for as long as that takes.

    Preserved: positions, timestamps and headers of events, committed cursors, event ids and idempotency keys. Not
    migrated: client activity, and measurements not published yet.

    Args:
        data: of a stopped broker.
        target: the settings of the cluster; its nodes must be stopped, and can't be started meanwhile.
        progress: called regularly.

    Raises:
        DataDirectoryError: the broker is running, or this is no data directory.
        Conflict: the directory was migrated, the cluster is not empty, or its data differs from the source.
        Unavailable: a server can't be reached, lacks its driver, or nodes use the cluster's database.
    """
    if not target.clustered:
        raise Unavailable("The target settings do not describe a cluster: set kafka, zookeeper and database.")
    if not (data / "registry.db").exists():
        raise Unavailable(f"There is no data in {data}. Name the data directory of a broker: --data.")
    with contextlib.ExitStack() as opened:
        directory = opened.enter_context(prepare_startup(Config(data=data), migrating=True))
        before = read_mark(data)
        if before is not None and before.complete:
            raise Conflict(f"This data directory was already migrated, to {before.cluster}, on {before.migrated_at}.")
        held = database_lease(target, command_identity("migrate", directory.broker))
        opened.enter_context(contextlib.closing(held.acquire(target.database_lock_timeout_s)))
        if before is not None and _has(target, before):
            there = opened.enter_context(contextlib.closing(build_infrastructure(target, directory)))
            return _complete(data, there, before)
        source = opened.enter_context(contextlib.closing(build_infrastructure(Config(data=data), directory)))
        head = _move_log(source, target, progress)
        there = opened.enter_context(contextlib.closing(build_infrastructure(target, directory)))
        storages = [each for each in source.registry.storages() if each.storage_type == EMBEDDED]
        _check_unmoved(storages, there)
        with contextlib.closing(_Events(source, target, storages, there)) as events:
            events.copy(partial(progress, "events copied"))
            count = events.compare(partial(progress, "events compared"))
        _move_names(source, target, partial(progress, "names"))
        subscriptions = _move_cursors(source, there.adapters.coordinator, partial(progress, "subscriptions"))
        copy_followers(source.log.engine, there.log.engine, but=TRACKING_NAME)
        for finding in verify(there.log.engine, TOPICS):
            raise Conflict(f"The log differs from the source after migration: {finding}")
        held.check()
        mark = MigrationMark(
            cluster=f"the cluster with Kafka at {target.kafka} and ZooKeeper at {target.zookeeper}",
            complete=False,
            migrated_at=there.system_context().origin.recorded_at,
            position=head.position,
            hash=head.hash.hex(),
            events=count,
            subscriptions=subscriptions,
        )
        write_mark(data, mark)
        return _complete(data, there, mark)


def _has(target: Config, mark: MigrationMark) -> bool:
    """Whether a cluster has the data that an interrupted migration has moved to it; else it was set up again since."""
    engine = database_engine(target)
    try:
        upgrade(engine)
        with reading(engine) as connection:
            return entry_hash(connection, mark.position) == bytes.fromhex(mark.hash)
    finally:
        engine.dispose()


def _complete(data: Path, there: Infrastructure, mark: MigrationMark) -> MigrationReport:
    """Let the cluster count: its nodes can start when its default storage, the last one, is in Kafka."""
    there.registry.refresh()
    for storage in sorted(there.registry.storages(), key=lambda each: each.default):
        if storage.storage_type == EMBEDDED:
            there.bus.dispatch(MoveStorage(storage_id=storage.id, storage_type=KAFKA), there.system_context())
    write_mark(data, msgspec.structs.replace(mark, complete=True))
    return MigrationReport(LogHead(mark.position, bytes.fromhex(mark.hash)), mark.events, mark.subscriptions)


def _move_log(source: Infrastructure, target: Config, progress: "Progress") -> LogHead:
    engine = database_engine(target)
    try:
        upgrade(engine)
        head = copy_log(source.log.engine, engine, partial(progress, "entries of the log"))
        catch_up(engine)
    finally:
        engine.dispose()
    return head


def _check_unmoved(storages: Sequence[StorageEntry], there: Infrastructure) -> None:
    for storage in storages:
        found = there.registry.storage(storage.id)
        if found is None or found.storage_type != EMBEDDED:
            raise Conflict(
                "This data directory was already migrated, and the cluster has changed since. Use an empty cluster to "
                "migrate again."
            )


class _Events:
    """The topics of all embedded storages, in the source and in the target."""

    def __init__(
        self, source: Infrastructure, target: Config, storages: Sequence[StorageEntry], there: Infrastructure
    ) -> None:
        open_store = opener(
            target.kafka,
            target.kafka_options,
            database=database_url(target),
            request_timeout_s=target.kafka_request_timeout_s,
            refuses_late=False,
            clock=there.clock,
            signals=there.adapters.signals,
            append_timeout_s=target.append_timeout_s,
        )
        self._source = source
        self._now_ms = there.clock.now_ms
        self._stores: dict[str, EventStore] = {}
        self._adoptions: dict[str, EventImporter] = {}
        for storage in storages:
            entry = StorageEntry(id=storage.id, storage_type=KAFKA, default=storage.default)
            store = self._stores[storage.id] = open_store(entry)
            examine(store)
            self._adoptions[storage.id] = event_importer(
                entry, target.kafka, target.kafka_options, request_timeout_s=target.kafka_request_timeout_s
            )
        self._total = sum(
            bounds.newest + 1 - bounds.oldest
            for timeline in self._timelines()
            for bounds in self._bounds_here(timeline)
        )

    def copy(self, progress: Callable[[int, int], None]) -> None:
        """Copy the events that the target lacks."""
        done = 0
        for timeline in self._timelines():
            there = self._stores[timeline.storage_id]
            there.create_topic(timeline.topic, timeline.partitions)
            adopted = self._adoptions[timeline.storage_id]
            adopted.begin(timeline.topic)
            reached = [bounds.newest + 1 for bounds in there.bounds(timeline.topic)]
            for number, bounds in enumerate(self._bounds_here(timeline)):
                done += max(0, reached[number] - bounds.oldest)
                for position in self._copy_partition(timeline, number, bounds, reached[number]):
                    progress(done + max(0, position - max(bounds.oldest, reached[number])), self._total)
                done += bounds.newest + 1 - max(bounds.oldest, reached[number])
                progress(done, self._total)
            adopted.finish(timeline.topic)
            if timeline.latest_position is not None:
                there.close_topic(timeline.topic)

    def _copy_partition(self, timeline: Timeline, number: int, bounds: Bounds, position: int) -> Iterator[int]:
        here, there = self._here(timeline), self._adoptions[timeline.storage_id]
        topic = timeline.topic
        while chunks := here.read(topic, number, max(position, bounds.oldest), READ_BYTES):
            there.write(topic, number, position, chunks)
            position = chunks[-1].next
            yield position
        there.skip(topic, number, position, bounds.newest + 1, self._now_ms())
        if bounds.oldest > 0:
            there.remove_before(topic, number, bounds.oldest)

    def compare(self, progress: Callable[[int, int], None]) -> int:
        """Compare all events of source and target; return their number.

        Raises:
            Conflict: contains the first difference.
        """
        done = 0
        for timeline in self._timelines():
            here, there = self._here(timeline), self._stores[timeline.storage_id]
            topic, held = timeline.topic, self._bounds_here(timeline)
            if held != list(there.bounds(topic)):
                raise Conflict(f"The topic {topic} of {timeline.event_type} does not hold the same positions in Kafka")
            for number, bounds in enumerate(held):
                pairs = zip_longest(_events(here, topic, number, bounds), _events(there, topic, number, bounds))
                for ours, theirs in pairs:
                    if ours != theirs:
                        where = f"{timeline.event_type}, partition {number}, position {(ours or theirs or (0,))[0]}"
                        raise Conflict(f"An event differs from the source after migration: {where}")
                    done += 1
                    if not done % 10_000:
                        progress(done, self._total)
        progress(done, self._total)
        return done

    def close(self) -> None:
        """Close all connections to the cluster."""
        for store in self._stores.values():
            store.close()

    def _here(self, timeline: Timeline) -> EventStore:
        return self._source.adapters.stores.of(timeline.storage_id)

    def _bounds_here(self, timeline: Timeline) -> list[Bounds]:
        # An interrupted repartitioning may have added partitions that the log does not know: they are empty.
        return list(self._here(timeline).bounds(timeline.topic)[: timeline.partitions])

    def _timelines(self) -> Iterator[Timeline]:
        registry = self._source.registry
        for event_type in registry.event_types():
            timelines = registry.timelines(event_type.name)
            switch = timelines.switch
            # A switch past the point of no return will be completed in the cluster, so its target topic must exist.
            following = [switch.timeline] if switch and switch.closing else []
            for timeline in (*timelines.readable, *following):
                if timeline.storage_id in self._stores:
                    yield timeline


def _events(store: EventStore, topic: str, number: int, bounds: Bounds) -> Iterator[tuple[int, int, bytes, Headers]]:
    """Yield all events of a partition: position, time, JSON, and headers."""
    position = bounds.oldest
    while chunks := store.read(topic, number, position, READ_BYTES):
        for chunk in chunks:
            for place in range(max(position, chunk.first), chunk.next):
                yield place, chunk.recorded_at_ms, chunk.cut(place, place + 1), chunk.headers_of(place)
        position = chunks[-1].next


def _move_names(source: Infrastructure, target: Config, progress: Callable[[int, int], None]) -> None:
    """Migrate the idempotency keys and event ids of all storages."""
    here, storages = source.directory, source.registry.storages()
    with contextlib.ExitStack() as opened:
        there = database_engine(target)
        opened.callback(there.dispose)
        for done, storage in enumerate(storages, 1):
            if storage.storage_type == EMBEDDED and here.events_in(storage.id).exists():
                database = opened.enter_context(contextlib.closing(EventsDatabase(here.events_in(storage.id))))
                import_keys(there, storage.id, of_embedded(database, there, storage.id))
            elif storage.storage_type == KAFKA and here.names.exists():
                engine = create_engine(f"sqlite:///{here.names}")
                opened.callback(engine.dispose)
                import_keys(there, storage.id, *of_kafka(engine, storage.id))
            progress(done, len(storages))


def _move_cursors(source: Infrastructure, there: Coordinator, progress: Callable[[int, int], None]) -> int:
    """Set the committed cursors of all subscriptions; return their number."""
    subscriptions = source.registry.subscriptions()
    for done, subscription in enumerate(subscriptions, 1):
        wanted = source.adapters.coordinator.cursors(subscription.id)
        if wanted:
            there.initialise(subscription.id, wanted)
            _set_cursors(there, subscription.id, wanted)
        progress(done, len(subscriptions))
    return len(subscriptions)


def _set_cursors(there: Coordinator, subscription_id: str, wanted: Mapping[EventTypePartition, str]) -> None:
    """Set the target's cursors to the source's, even if an earlier try has set others."""
    found = there.cursors(subscription_id)
    if found.keys() != wanted.keys():
        there.extend(subscription_id, {key: offset for key, offset in wanted.items() if key not in found})
    if other := {key: offset for key, offset in wanted.items() if there.cursors(subscription_id)[key] != offset}:
        there.reset(subscription_id, other, RESET_S)
    if dict(there.cursors(subscription_id)) != dict(wanted):
        raise Conflict(f"The cursors of the subscription {subscription_id} differ from the source after migration")
