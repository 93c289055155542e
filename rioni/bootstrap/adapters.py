"""Chooses the adapters of the ports: single-machine or cluster.

On one machine everything lies in the data directory, but for what settings and storages put elsewhere. In a cluster
nothing lies there that another node must know: the log is in PostgreSQL, who reads what in ZooKeeper, events in Kafka.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from rioni.bootstrap.pools import Offloads
from rioni.config.settings import Config
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.leadership import Leadership
from rioni.domain.ports.notifier import Notifier
from rioni.domain.ports.quota import ConnectionQuota
from rioni.domain.ports.store_measurements import StoreMeasurements
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.coordination.quota import EmbeddedSlots
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.leadership import FileLeadership
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_stores import EventStoreRegistry
from rioni.storage.kafka.factory import opener
from rioni.storage.zookeeper.factory import Shared, open_shared
from rioni.storage.zookeeper.session.options import read_options


class _Closes(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)
FindStorage = Callable[[str], StorageEntry | None]


class Adapters(NamedTuple):
    """What one worker process has open; a forked process must open its own."""

    stores: EventStores
    coordinator: Coordinator
    slots: ConnectionQuota
    leadership: Leadership
    signals: Notifier
    report: Callable[[int], None]
    """Tells operators how far this process has followed the log."""
    advance: Callable[[str], int | None]
    """Given the installation's id, raises the sequence number of what nodes share; None where nothing has changed."""
    close: Callable[[], None]
    """Lets go of everything, so that other processes take over at once."""


def opened_adapters(
    config: Config,
    directory: DataDirectory,
    offloads: Offloads,
    find: FindStorage,
    measurements: StoreMeasurements,
) -> Adapters:
    """Open what the settings ask for; blocks on disks and servers.

    Args:
        config: the settings.
        directory: of this node.
        offloads: where each kind of work blocks.
        find: the storage with an id.
        measurements: told how stores fare that others run.

    Raises:
        Unavailable: a server does not answer, or its driver is not installed.
    """
    with contextlib.ExitStack() as opened:

        def kept(adapter: C) -> C:
            opened.callback(adapter.close)
            return adapter

        local = kept(EmbeddedSignals(directory.signals))
        shared = _shared(config, local) if config.clustered else _embedded(directory, local, offloads)
        return Adapters(
            stores=kept(_stores(config, directory, shared.signals, offloads, find, measurements)),
            # The coordinator is what the others need, so it is closed after them.
            coordinator=kept(shared.coordinator),
            slots=kept(shared.slots),
            leadership=kept(shared.leadership),
            signals=shared.signals,
            report=shared.report,
            advance=shared.advance,
            close=opened.pop_all().close,
        )


def check_shared(config: Config, directory: DataDirectory, installation: str, mark: int | None) -> int:
    """Make sure that ZooKeeper lets this node in, and close the session at once; blocks until a server answers.

    Args:
        config: of a node of a cluster.
        directory: of this node.
        installation: the id that the registry keeps.
        mark: the sequence number that the path has at least; None if it may be new, or was lost.

    Returns:
        The sequence number of the path.

    Raises:
        DataMismatch: ZooKeeper has lost data.
        Unavailable: as `opened_adapters`, or another installation uses the path.
    """
    with contextlib.closing(EmbeddedSignals(directory.signals)) as local:
        shared = _shared(config, local)
        with contextlib.closing(shared.coordinator):
            return shared.claim(installation, mark)


def _stores(
    config: Config,
    directory: DataDirectory,
    signals: Notifier,
    offloads: Offloads,
    find: FindStorage,
    measurements: StoreMeasurements,
) -> EventStores:
    options: dict[str, Any] = {
        "clock": SystemClock(),
        "signals": signals,
        "cache_bytes_max": config.cache_bytes_max,
        "append_timeout_s": config.append_timeout_s,
    }
    kafka = opener(
        config.kafka,
        config.kafka_options,
        database=config.database or f"sqlite:///{directory.names}",
        request_timeout_s=config.kafka_request_timeout_s,
        measurements=measurements,
        offloads=offloads.of_storage,
        **options,
    )
    if config.clustered:
        return EventStoreRegistry(find, {KAFKA: kafka}, offloads.of_storage)

    def embedded(storage: StorageEntry) -> EventStore:
        return EmbeddedEventStore(directory.events_in(storage.id), offloads=offloads.of_storage(storage.id), **options)

    return EventStoreRegistry(find, {EMBEDDED: embedded, KAFKA: kafka}, offloads.of_storage)


def _shared(config: Config, local: EmbeddedSignals) -> Shared:
    assert config.zookeeper is not None, "this is what makes a cluster"
    return open_shared(
        config.zookeeper,
        local,
        session_timeout_s=config.zookeeper_session_timeout_s,
        options=read_options(config.zookeeper_options),
    )


def _embedded(directory: DataDirectory, local: EmbeddedSignals, offloads: Offloads) -> Shared:
    """The same for the processes of one machine."""
    clock, blocking = SystemClock(), offloads.coordination
    coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=local, offload=blocking)
    worker, lives = coordinator.worker, coordinator.lives
    slots = EmbeddedSlots(directory.slots, worker=worker, lives=lives, offload=offloads.slots)
    return Shared(coordinator, slots, FileLeadership(directory.leadership), local)
