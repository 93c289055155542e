"""The composition root: from the settings to adapters, bus, queries, application; the only importer of storage."""

import contextlib
import functools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar
from uuid import uuid4

from rioni.commands.bus import Bus
from rioni.commands.context import Context
from rioni.commands.cursors import Committer
from rioni.commands.gate import Gate
from rioni.commands.jobs import Housekeeper
from rioni.commands.positions import Positions
from rioni.commands.publishing import Publisher
from rioni.commands.storages import CreateStorage
from rioni.config import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.authorization import BROKER, Attribute
from rioni.domain.errors import Unavailable
from rioni.domain.events import Origin
from rioni.domain.limits import Limits
from rioni.domain.ports import Coordinator, EventStore, Offload
from rioni.domain.storage_entry import DEFAULT_STORAGE, StorageEntry
from rioni.http.app import create_app
from rioni.http.metrics import Metrics
from rioni.http.services import STOPPING_KEY, Services
from rioni.http.timestamps import rfc3339
from rioni.projections import audit_log, storages
from rioni.projections.audit_log import AuditFilter
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from rioni.projections.states import all_states
from rioni.storage import sql
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.coordination import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.embedded.events import EmbeddedEventStore, direct
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_log import SqlEventLog
from rioni.storage.migration import upgrade
from rioni.storage.verification import verify as verify_log


if TYPE_CHECKING:
    from rioni.projections.bulk.audit import ExportReport
    from rioni.projections.bulk.rebuild import RebuildReport


P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[str, int, int], None]


class Worker(NamedTuple):
    """What one worker process runs."""

    app: Any
    """The WSGI application."""
    stop: Callable[[], None]
    """Lets the streams say goodbye."""
    keep_house: Callable[[], None]
    """What is to be done now and then."""
    metrics: Metrics


class _Adapters(NamedTuple):
    store: EventStore
    coordinator: Coordinator
    signals: EmbeddedSignals

    def close(self) -> None:
        """Let go of all files and sockets; needed where a process forks afterwards."""
        self.coordinator.close()
        self.store.close()
        self.signals.close()


def limits_of(config: Config) -> Limits:
    """The limits that the rules of the domain need."""
    return Limits(**{name: getattr(config, name) for name in Limits.__struct_fields__})


def database_url(config: Config) -> str:
    """Where the log and the read models are."""
    return config.database or f"sqlite:///{config.data.absolute() / 'registry.db'}"


@contextlib.contextmanager
def prepare(config: Config) -> Iterator[DataDirectory]:
    """Lock the data directory, and bring the database to the present schema and its first content.

    Raises:
        DataDirectoryError: the data directory can't be used.
        Unavailable: the database can't be reached.
    """
    with DataDirectory(config.data) as directory:
        engine = sql.create_engine(database_url(config))
        try:
            upgrade(engine)
            _seed(config, engine, directory)
        finally:
            engine.dispose()
        yield directory


def _seed(config: Config, engine: Any, directory: DataDirectory) -> None:
    """Let the read models catch up with the log, and create the default storage where there is none."""
    log, projector = SqlEventLog(engine, TOPICS), Projector()
    with log.transaction() as transaction:
        projector.apply(transaction.connection, transaction.entries(projector.position(transaction.connection)))
    with sql.reading(engine) as connection:
        if storages.all_storages(connection):
            return
    now = rfc3339(SystemClock().now_ms())
    origin = Origin(actor=BROKER.name, client="", flow_id="", command_id=str(uuid4()), recorded_at=now)
    storage = StorageEntry(id=DEFAULT_STORAGE, storage_type="embedded", default=True)
    with contextlib.closing(log), contextlib.closing(_adapters(config, directory, direct)) as adapters:
        bus = _bus(config, log, adapters)
        bus.dispatch(CreateStorage(storage=storage), Context(subject=BROKER, origin=origin))


def worker(config: Config, directory: DataDirectory, offload: Offload) -> Worker:
    """Put together what one worker process runs; call it in that process.

    Args:
        config: the settings.
        directory: locked by the master process.
        offload: where blocking calls go.

    Raises:
        Unavailable: the database can't be reached.
    """
    log = SqlEventLog(sql.create_engine(database_url(config)), TOPICS)
    adapters = _adapters(config, directory, offload)
    limits, clock, default_admin = limits_of(config), SystemClock(), _default_admin(config)
    registry = MemoryRegistry(log, limits, offload)
    _load(registry, log)
    gate = Gate(registry, default_admin)
    bus = _bus(config, log, adapters)
    positions = Positions(
        registry,
        gate,
        bus,
        store=adapters.store,
        coordinator=adapters.coordinator,
        offload=offload,
        reset_timeout_s=config.commit_timeout_max_s + 1,
    )
    services = Services(
        config=config,
        limits=limits,
        default_admin=default_admin,
        clock=clock,
        offload=offload,
        bus=bus,
        positions=positions,
        gate=gate,
        # Chance decides on partitions only; nobody gains anything by guessing it.
        publisher=Publisher(registry, gate, adapters.store, clock, random.Random(), limits),  # noqa: S311
        committer=Committer(registry, gate, adapters.coordinator),
        registry=registry,
        store=adapters.store,
        coordinator=adapters.coordinator,
        signals=adapters.signals,
        read=_reader(log),
        stopping=threading.Event(),
    )

    def stop() -> None:
        services.stopping.set()
        adapters.signals.notify(STOPPING_KEY)

    housekeeper = Housekeeper(registry, adapters.store, adapters.coordinator, clock)
    metrics = Metrics()
    return Worker(create_app(services, metrics), stop, housekeeper.tick, metrics)


def _adapters(config: Config, directory: DataDirectory, offload: Offload) -> _Adapters:
    clock, signals = SystemClock(), EmbeddedSignals(directory.signals)
    store = EmbeddedEventStore(
        directory.events, clock=clock, signals=signals, offload=offload, cache_bytes_max=config.cache_bytes_max
    )
    coordinator = EmbeddedCoordinator(directory.coordination, clock=clock, signals=signals, offload=offload)
    return _Adapters(store, coordinator, signals)


def _bus(config: Config, log: SqlEventLog, adapters: _Adapters) -> Bus:
    return Bus(
        log,
        Projector(),
        store=adapters.store,
        coordinator=adapters.coordinator,
        limits=limits_of(config),
        default_admin=_default_admin(config),
    )


def _default_admin(config: Config) -> Attribute:
    data_type, _, value = config.admin_default.partition(":")
    return Attribute(data_type, value)


def _load(registry: MemoryRegistry, log: SqlEventLog) -> None:
    """Start the registry from the read models, which is quicker than from the beginning of the log."""
    with sql.reading(log.engine) as connection:
        registry.load(all_states(connection), Projector().position(connection))


def _reader(log: SqlEventLog) -> Callable[..., Any]:
    def read(query: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with sql.reading(log.engine) as connection:
            return query(connection, *args, **kwargs)

    return read


# --- what operators and auditors do ---


def verify(config: Config) -> Iterator[str]:
    """Yield everything that is wrong with the internal log and with the stored events; safe while the broker runs.

    Raises:
        Unavailable: there is no such data.
    """
    _check_exists(config)
    engine = sql.create_engine(database_url(config))
    for finding in verify_log(engine, TOPICS):
        yield f"log, {finding}"
    clock, signals = SystemClock(), EmbeddedSignals(config.data / "signals")
    with (
        contextlib.closing(signals),
        contextlib.closing(EmbeddedEventStore(config.data / "events.db", clock=clock, signals=signals)) as store,
    ):
        for damage in store.verify():
            yield f"events, {damage}"


def audit(
    config: Config,
    *,
    since: str | None = None,
    until: str | None = None,
    actor: str | None = None,
    resource: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the audit entries that match, in order; see `rioni.projections.audit_log`.

    Raises:
        Unavailable: there is no such data.
    """
    _check_exists(config)
    wanted = AuditFilter(since=since, until=until, actor=actor, resource=resource)
    with sql.reading(sql.create_engine(database_url(config))) as connection:
        yield from audit_log.entries(connection, wanted)


def rebuild(config: Config, *, dry_run: bool, progress: Progress) -> "RebuildReport":
    """Rebuild all read models with Spark, or only compare; see `rioni.projections.bulk.rebuild`."""
    _check_exists(config)
    check_spark()
    from rioni.projections.bulk import rebuild as bulk  # noqa: PLC0415 - an extra

    url, scratch = database_url(config), config.data.absolute() / "scratch"
    turn = functools.partial(sql.turn, sql.create_engine(url))
    return bulk.rebuild(url, scratch, dry_run=dry_run, progress=progress, turn=turn)


def export_audit(
    config: Config,
    output: Path,
    *,
    since: str | None = None,
    until: str | None = None,
    actor: str | None = None,
    resource: str | None = None,
    progress: Progress,
) -> "ExportReport":
    """Export the audit trail to Parquet with Spark; see `rioni.projections.bulk.audit`."""
    _check_exists(config)
    check_spark()
    from rioni.projections.bulk import audit as bulk  # noqa: PLC0415 - an extra

    wanted = AuditFilter(since=since, until=until, actor=actor, resource=resource)
    scratch = config.data.absolute() / "scratch"
    return bulk.export(database_url(config), scratch, output, wanted=wanted, progress=progress)


def check_spark() -> None:
    """Check that Spark can be imported.

    Raises:
        Unavailable: the extra is not installed.
    """
    try:
        import pyspark  # noqa: F401, PLC0415 - an extra
    except ImportError as ex:
        raise Unavailable("This needs Spark, and Java 17 or newer: pip install 'rioni[spark]'") from ex


def _check_exists(config: Config) -> None:
    if config.database is None and not (config.data / "registry.db").exists():
        raise Unavailable(
            f"There is no data in {config.data}. Name the data directory of a broker: --data or RIONI_DATA."
        )
