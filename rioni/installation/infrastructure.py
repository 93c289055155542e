"""Builds the shared infrastructure of a worker, and brings the read models up to date before a broker starts."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.routes import ROUTES
from rioni.commands.system.storages import CreateStorage
from rioni.commands.unit_of_work import CommandContext
from rioni.config.settings import Config
from rioni.domain.access.authorization import BROKER
from rioni.domain.aggregates import TOPICS
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.events import Origin
from rioni.domain.limits import Limits
from rioni.domain.ports.event_log import LogEntry
from rioni.domain.ports.event_store import StoreMeasurements
from rioni.domain.ports.host import LOG_KEY, Clock, ThreadPool
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timestamps import rfc3339
from rioni.files.signing_key import load_key
from rioni.installation.adapters import Adapters, opened_adapters
from rioni.installation.database import database_engine, reading_models
from rioni.installation.from_config import auditors, default_admin, first_storage, key_file, limits_of
from rioni.installation.pools import NO_POOLS, WorkerPools
from rioni.projections.custom import installed
from rioni.projections.custom_tables import LiveProjector, prepare
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.projector import OtherFold, Projector, all_states
from rioni.projections.queries.storages import all_storages
from rioni.projections.registry import MemoryRegistry
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.log.event_log import SqlEventLog


# --- Builds the shared infrastructure of a worker: log, registry, adapters and command bus ---

T = TypeVar("T")


class Infrastructure(NamedTuple):
    """Resources shared by the services and the jobs of a worker process."""

    config: Config
    limits: Limits
    directory: DataDirectory
    pools: WorkerPools
    clock: Clock
    log: SqlEventLog
    registry: MemoryRegistry
    adapters: Adapters
    bus: CommandBus
    compiled: CompiledCache[Any]
    """The cache of compiled schemas, in all their forms."""

    def read(self, query: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call `query(connection, ...)` with a connection to the read models."""
        with reading_models(self.log.engine) as connection:
            return query(connection, *args, **kwargs)

    def close(self) -> None:
        """Release all resources; the object must not be used afterwards."""
        with contextlib.closing(self.log):
            self.adapters.close()

    def system_context(self) -> CommandContext:
        """Return the context of a command that the broker issues itself."""
        now = rfc3339(self.clock.now_ms())
        origin = Origin(actor=BROKER.name, client="", flow_id="", command_id=str(uuid4()), recorded_at=now)
        return CommandContext(subject=BROKER, origin=origin)


def build_infrastructure(
    config: Config,
    directory: DataDirectory,
    pools: WorkerPools = NO_POOLS,
    measurements: StoreMeasurements = StoreMeasurements(),  # noqa: B008 - immutable
    clock: Clock = SystemClock(),  # noqa: B008 - without state
) -> Infrastructure:
    """Open everything that the settings require, and create the first storage if there is none; blocks.

    Args:
        config: the settings.
        directory: of this node.
        pools: the pools for each kind of blocking work.
        measurements: records the measurements of Kafka stores.
        clock: of everything.

    Raises:
        Unavailable: a server can't be reached.
    """
    log = SqlEventLog(database_engine(config), TOPICS)
    limits = limits_of(config)
    compiled: CompiledCache[Any] = CompiledCache(config.compiled_schemas_bytes_max)
    registry = MemoryRegistry(log, limits, pools.database, pools.computing, compiled)
    # Loading the read models is faster than replaying the log.
    with reading_models(log.engine) as connection:
        registry.load(all_states(connection), Projector().position(connection))
    adapters = opened_adapters(
        config, directory, pools, partial(_storage_of, registry, log, pools.database), measurements, clock
    )
    log.follow(partial(adapters.signals.notify, LOG_KEY))
    bus = CommandBus(
        log,
        LiveProjector(installed()),
        ROUTES,
        stores=adapters.stores,
        coordinator=adapters.coordinator,
        limits=limits,
        default_admin=default_admin(config),
        auditors=auditors(config),
        pool=pools.database,
        compute=pools.definitions,
    )
    infrastructure = Infrastructure(config, limits, directory, pools, clock, log, registry, adapters, bus, compiled)
    if not registry.storages():
        # All workers of all nodes may do so concurrently.
        with contextlib.suppress(Conflict):
            bus.dispatch(CreateStorage(storage=first_storage(config)), infrastructure.system_context())
        registry.refresh()
    return infrastructure


def _storage_of(registry: MemoryRegistry, log: SqlEventLog, pool: ThreadPool, storage_id: str) -> StorageEntry | None:
    """Return a storage, even if this process has not read it yet; runs in threads, which must not refresh."""

    def look() -> StorageEntry | None:
        with reading_models(log.engine) as connection:
            return next((each for each in all_storages(connection) if each.id == storage_id), None)

    return registry.storage(storage_id) or pool(look)


# --- Brings the read models up to date with the log before a broker starts ---

REFOLDED_ENTRIES_MAX = 20_000
"""PERF: refolding this many at the start takes half a minute; Spark is faster for more, while the broker runs."""
REFOLDED_TOLD_EVERY = 5_000

_log = structlog.get_logger("rioni.installation")


def catch_up(engine: Any) -> None:
    """Apply new log entries to the read models; blocks.

    If an older version of the fold wrote them, they are rebuilt, all in one transaction.

    Raises:
        OtherFold: a newer version of the fold wrote them, or the log is too long for a rebuild here.
        Unavailable: the database can't be reached, or the log is in a newer format.
    """
    log, projector = SqlEventLog(engine, TOPICS), Projector()
    with contextlib.closing(log), log.transaction() as transaction:
        connection, end = transaction.connection, transaction.head.position
        found = projector.fold_version(connection)
        entries = transaction.entries(projector.position(connection))
        if found is not None and found != FOLD_VERSION:
            if found > FOLD_VERSION or end > REFOLDED_ENTRIES_MAX:
                raise OtherFold(found)
            _log.info("rebuilding read models from the log", written_by=found, version=FOLD_VERSION, entries=end)
            projector.clear(connection)
            entries = _told(transaction.entries(0), end)
        projector.apply(connection, entries)
        prepare(connection, installed())


def _told(entries: Iterator[LogEntry], end: int) -> Iterator[LogEntry]:
    for entry in entries:
        yield entry
        if entry.position % REFOLDED_TOLD_EVERY == 0:
            _log.info("rebuilding read models from the log", done=entry.position, entries=end)


def shared_secret(config: Config, directory: DataDirectory) -> bytes:
    """The secret of all nodes; without a usable key, the secret of all workers of this run. Blocks on the disk."""
    try:
        return load_key(key_file(config), create=False).private_bytes_raw()
    except Unavailable:
        return directory.secret
