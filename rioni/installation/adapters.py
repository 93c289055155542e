"""Chooses the adapters of the ports: single-machine or cluster.

On one machine all data is in the data directory, except what settings and storages put elsewhere. In a cluster it holds
nothing that other nodes need: the log is in PostgreSQL, assignments and cursors in ZooKeeper, events in Kafka.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from rioni.config.settings import Config
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_store import EventStore, EventStores, StoreMeasurements
from rioni.domain.ports.host import Clock, ConnectionQuota, Leadership, Notifier
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.installation.pools import WorkerPools
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.coordination.workers import FileLeadership
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.expendable import EmbeddedConnectionQuota
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import CacheMemory, EventStoreRegistry
from rioni.storage.kafka.factory import opener
from rioni.storage.zookeeper.factory import SharedClients, open_shared, read_options


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)
FindStorage = Callable[[str], StorageEntry | None]


class Adapters(NamedTuple):
    """The open adapters of one worker process; a forked process must open its own."""

    stores: EventStores
    coordinator: Coordinator
    quota: ConnectionQuota
    leadership: Leadership
    signals: Notifier
    publish_position: Callable[[int], None]
    """Publishes this process's position in the log for operators."""
    advance: Callable[[str], int | None]
    """Given the installation's id, raises the sequence number of the shared state; None if nothing has changed."""
    close: Callable[[], None]
    """Closes all adapters, so that other processes can take over at once."""


def opened_adapters(
    config: Config,
    directory: DataDirectory,
    pools: WorkerPools,
    find: FindStorage,
    measurements: StoreMeasurements,
    clock: Clock,
) -> Adapters:
    """Open the adapters chosen by the settings; blocks on disks and servers.

    Args:
        config: the settings.
        directory: of this node.
        pools: the pools for each kind of blocking work.
        find: returns the storage with an id.
        measurements: records the measurements of Kafka stores.
        clock: for the time of events, and for deadlines on one machine.

    Raises:
        Unavailable: a server does not answer, or its driver is not installed.
    """
    with contextlib.ExitStack() as opened:

        def kept(adapter: C) -> C:
            opened.callback(adapter.close)
            return adapter

        local = kept(EmbeddedSignals(directory.signals, directory.changes))
        shared = shared_adapters(config, local) if config.clustered else _embedded(directory, local, pools, clock)
        return Adapters(
            stores=kept(_stores(config, directory, shared.signals, pools, find, measurements, clock)),
            # The coordinator is used by the others, so it is closed after them.
            coordinator=kept(shared.coordinator),
            quota=kept(shared.quota),
            leadership=kept(shared.leadership),
            signals=shared.signals,
            publish_position=shared.publish_position,
            advance=shared.advance,
            close=opened.pop_all().close,
        )


def check_shared(config: Config, directory: DataDirectory, installation: str, mark: int | None) -> int:
    """Check that ZooKeeper accepts this node, and close the session at once; blocks until a server answers.

    Args:
        config: of a node of a cluster.
        directory: of this node.
        installation: id recorded in the registry.
        mark: the minimum sequence number of the path; None if it may be new, or was lost.

    Returns:
        The sequence number of the path.

    Raises:
        DataMismatch: ZooKeeper has lost data.
        Unavailable: as `opened_adapters`, or another installation uses the path.
    """
    with contextlib.closing(EmbeddedSignals(directory.signals)) as local:
        shared = shared_adapters(config, local)
        with contextlib.closing(shared.coordinator):
            return shared.claim(installation, mark)


def _stores(
    config: Config,
    directory: DataDirectory,
    signals: Notifier,
    pools: WorkerPools,
    find: FindStorage,
    measurements: StoreMeasurements,
    clock: Clock,
) -> EventStores:
    options: dict[str, Any] = {
        "clock": clock,
        "signals": signals,
        "cache_memory": CacheMemory(config.cache_bytes_max),
        "append_timeout_s": config.append_timeout_s,
    }
    kafka = opener(
        config.kafka,
        config.kafka_options,
        database=config.database or f"sqlite:///{directory.names}",
        request_timeout_s=config.kafka_request_timeout_s,
        measurements=measurements,
        pools=pools.of_storage,
        **options,
    )
    if config.clustered:
        return EventStoreRegistry(find, {KAFKA: kafka}, pools.of_storage)

    def embedded(storage: StorageEntry) -> EventStore:
        return EmbeddedEventStore(directory.events_in(storage.id), pools=pools.of_storage(storage.id), **options)

    return EventStoreRegistry(find, {EMBEDDED: embedded, KAFKA: kafka}, pools.of_storage)


def shared_adapters(config: Config, local: EmbeddedSignals) -> SharedClients:
    """Open the servers that the nodes of a cluster share; blocks, and raises as `opened_adapters`."""
    assert config.zookeeper is not None, "this is what makes a cluster"
    return open_shared(
        config.zookeeper,
        local,
        session_timeout_s=config.zookeeper_session_timeout_s,
        options=read_options(config.zookeeper_options),
    )


def _embedded(directory: DataDirectory, local: EmbeddedSignals, pools: WorkerPools, clock: Clock) -> SharedClients:
    """Open the counterparts for the processes of one machine."""
    blocking = pools.coordination
    coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=local, pool=blocking)
    worker, is_alive = coordinator.worker, coordinator.is_alive
    slots = EmbeddedConnectionQuota(directory.slots, worker=worker, is_alive=is_alive, pool=pools.slots)
    return SharedClients(coordinator, slots, FileLeadership(directory.leadership), local)
