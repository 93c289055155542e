"""What operators and auditors do with a broker's data beside the running broker, or without one."""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from rioni.bootstrap.database import database_engine, database_url
from rioni.bootstrap.settings import limits_of
from rioni.config import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import Unavailable
from rioni.domain.health import examine
from rioni.domain.ports import direct
from rioni.domain.storage_entry import KAFKA
from rioni.projections import audit_log
from rioni.projections.audit_log import AuditFilter
from rioni.projections.projector import Projector
from rioni.projections.registry import MemoryRegistry
from rioni.projections.states import all_states
from rioni.storage import sql
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.event_log import SqlEventLog
from rioni.storage.kafka.opening import opener
from rioni.storage.kafka.verification import verify as verify_kafka
from rioni.storage.verification import verify as verify_log


if TYPE_CHECKING:
    from rioni.projections.bulk.audit import ExportReport
    from rioni.projections.bulk.rebuild import RebuildReport


Progress = Callable[[str, int, int], None]


def verify(config: Config) -> Iterator[str]:
    """Yield everything that is wrong with the internal log and with the stored events; safe while the broker runs.

    Raises:
        Unavailable: there is no such data, or a server can't be reached.
    """
    _check_exists(config)
    engine = database_engine(config)
    for finding in verify_log(engine, TOPICS):
        yield f"log, {finding}"
    yield from _verify_kafka(config, engine)
    if not (databases := sorted(config.data.glob("events*.db"))):
        return
    clock, signals = SystemClock(), EmbeddedSignals(config.data / "signals")
    with contextlib.closing(signals):
        for path in databases:
            with contextlib.closing(EmbeddedEventStore(path, clock=clock, signals=signals)) as store:
                for damage in store.verify():
                    yield f"{path.stem}, {damage}"


def _verify_kafka(config: Config, engine: Engine) -> Iterator[str]:
    """Yield what is wrong with the events of storages of type kafka."""
    registry = MemoryRegistry(SqlEventLog(engine, TOPICS), limits_of(config), direct)
    with sql.reading(engine) as connection:
        registry.load(all_states(connection), Projector().position(connection))
    storages = [storage for storage in registry.storages() if storage.storage_type == KAFKA]
    if not storages:
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        signals = opened.enter_context(contextlib.closing(EmbeddedSignals(Path(folder))))
        open_store = opener(
            config.kafka,
            config.kafka_options,
            database=f"sqlite:///{folder}/names.db",  # it appends nothing
            request_timeout_s=config.kafka_request_timeout_s,
            clock=SystemClock(),
            signals=signals,
        )
        for storage in storages:
            store = opened.enter_context(contextlib.closing(open_store(storage)))
            examine(store)
            for event_type in registry.event_types():
                for timeline in registry.timelines(event_type.name).readable:
                    if timeline.storage_id == storage.id:
                        compacted = event_type.cleanup_policy != "delete"
                        for damage in verify_kafka(store, timeline, compacted=compacted):
                            yield f"storage {storage.id}, {damage}"


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
    yield from audit_log.entries(functools.partial(sql.reading, database_engine(config)), wanted)


def rebuild(config: Config, *, dry_run: bool, progress: Progress) -> "RebuildReport":
    """Rebuild all read models with Spark, or only compare; see `rioni.projections.bulk.rebuild`."""
    _check_exists(config)
    check_spark()
    from rioni.projections.bulk import rebuild as bulk  # noqa: PLC0415 - an extra

    url, scratch = database_url(config), config.data.absolute() / "scratch"
    turn = functools.partial(sql.turn, database_engine(config))
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
