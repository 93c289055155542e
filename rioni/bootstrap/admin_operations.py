"""Runs operations on a broker's data for operators and auditors, with or without a running broker."""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from rioni.bootstrap.consistency.event_chains import chain_findings
from rioni.bootstrap.consistency.kafka import compare_kafka
from rioni.bootstrap.consistency.stores import cursors_beyond_end, mismatches
from rioni.bootstrap.database import database_engine, database_url, reading_models
from rioni.bootstrap.from_config import limits_of
from rioni.config.settings import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import Unavailable
from rioni.domain.ports.health import examine
from rioni.domain.ports.thread_pool import direct
from rioni.domain.system.storages import KAFKA
from rioni.projections.projector import Projector
from rioni.projections.queries import audit_log
from rioni.projections.queries.audit_log import AuditFilter
from rioni.projections.queries.states import all_states
from rioni.projections.registry import MemoryRegistry
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.read_only import ReadOnlyDatabase
from rioni.storage.embedded.events.verification import verify as verify_events
from rioni.storage.embedded.signals import EmbeddedSignals
from rioni.storage.kafka.factory import opener
from rioni.storage.kafka.verification import verify as verify_kafka
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.verification import verify as verify_log
from rioni.storage.sql import engines
from rioni.storage.sql.migration import check_current
from rioni.storage.sql.read_only import read_only_engine
from rioni.storage.sql.rebuild_lock import rebuild_lock


if TYPE_CHECKING:
    from rioni.projections.bulk.audit import ExportReport
    from rioni.projections.bulk.rebuild import Progress, RebuildReport


def verify(config: Config) -> Iterator[str]:
    """Yield all damage of the internal log and the stored events, and all signs of a replaced store.

    Nothing is written or migrated; works beside a running broker, and on a copy.

    Raises:
        Unavailable: the data does not exist, or a server can't be reached.
    """
    check_exists(config)
    with read_only_engine(database_url(config)) as engine:
        check_current(engine)
        for finding in verify_log(engine, TOPICS):
            yield f"log, {finding}"
        if not config.clustered:
            yield from mismatches(engine, config.data)
            yield from cursors_beyond_end(engine, config.data)
            yield from chain_findings(engine, config.data, SystemClock().now_ms())
        compared = compare_kafka(config, engine)
        compared.check_reached()
        yield from compared.findings
        yield from _verify_kafka(config, engine)
    for path in sorted(config.data.glob("events*.db")):
        with contextlib.closing(ReadOnlyDatabase(path)) as database:
            for damage in verify_events(database):
                where = f", topic {damage.topic}, partition {damage.partition}, position {damage.position}"
                yield f"{path.stem}{where if damage.topic else ''}: {damage.what}"


def _verify_kafka(config: Config, engine: Engine) -> Iterator[str]:
    """Yield the damage of events in storages of type kafka."""
    registry = MemoryRegistry(SqlEventLog(engine, TOPICS), limits_of(config), direct, direct)
    with reading_models(engine) as connection:
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
    """Yield the matching audit entries, in order; see `rioni.projections.queries.audit_log`.

    Raises:
        Unavailable: the data does not exist.
    """
    check_exists(config)
    wanted = AuditFilter(since=since, until=until, actor=actor, resource=resource)
    yield from audit_log.entries(functools.partial(reading_models, database_engine(config)), wanted)


def rebuild(config: Config, *, dry_run: bool, progress: "Progress") -> "RebuildReport":
    """Rebuild all read models with Spark, or only compare; see `rioni.projections.bulk.rebuild`."""
    check_exists(config)
    check_spark()
    from rioni.projections.bulk import rebuild as bulk  # noqa: PLC0415 - an extra

    url, scratch = database_url(config), config.data.absolute() / "scratch"
    engine = database_engine(config)
    check_current(engine)
    return bulk.rebuild(
        url,
        scratch,
        dry_run=dry_run,
        progress=progress,
        alone=functools.partial(rebuild_lock, engine),
        turn=functools.partial(engines.write_lock, engine),
    )


def export_audit(
    config: Config,
    output: Path,
    *,
    since: str | None = None,
    until: str | None = None,
    actor: str | None = None,
    resource: str | None = None,
    progress: "Progress",
) -> "ExportReport":
    """Export the audit trail to Parquet with Spark; see `rioni.projections.bulk.audit`."""
    check_exists(config)
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


def check_exists(config: Config) -> None:
    """Check that there are data; raises Unavailable else."""
    if config.database is None and not (config.data / "registry.db").exists():
        raise Unavailable(
            f"There is no data in {config.data}. Name the data directory of a broker: --data or RIONI_DATA."
        )
