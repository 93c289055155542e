"""Prepares the start of the worker processes: locks the data directory, migrates the database.

The database lease is held meanwhile. Then it is released, because a connection must not be forked: each worker takes it
again. For the same reason the ZooKeeper session that checks the configuration ends at once; it is checked here because
a worker could not report errors in one line.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from rioni.config.settings import Config
from rioni.domain.errors import Conflict, Unavailable
from rioni.domain.ports.host import direct
from rioni.domain.system.anchors import DataMismatch
from rioni.domain.system.storages import EMBEDDED
from rioni.files.plain import private_umask
from rioni.installation.adapters import check_shared
from rioni.installation.database import (
    cluster_identity,
    damage_reported,
    database_engine,
    database_lease,
    reading_models,
)
from rioni.installation.from_config import token_policy
from rioni.installation.infrastructure import catch_up
from rioni.installation.kafka import compare_kafka
from rioni.installation.stores import check_registry, mismatches
from rioni.projections.generations import rebuilds
from rioni.projections.generations.generation import WORKING, remove
from rioni.projections.queries.storages import all_storages
from rioni.server.log_tree import make_key
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.data_directory import DataDirectory, check_not_migrated
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.embedded.expendable import renew_damaged
from rioni.storage.kafka.factory import options_of, read_options
from rioni.storage.sql.database_locks import rebuild_lock
from rioni.storage.sql.engines import writing
from rioni.storage.sql.migration import upgrade
from rioni.storage.sql.store_marks import ZOOKEEPER, installation_id, raise_marks, zookeeper_mark
from rioni.storage.tokens.sources import sources_of_tokens


_log = structlog.get_logger("rioni.server")


@contextlib.contextmanager
def prepare_startup(config: Config, *, migrating: bool = False) -> Iterator[DataDirectory]:
    """Lock the data directory, migrate the database, and bring the read models up to date with the log.

    Args:
        config: the settings.
        migrating: whether it is opened to be migrated to a cluster, or to complete that.

    Raises:
        DataDirectoryError: the data directory can't be used, or was migrated to a cluster.
        DataMismatch: a store was replaced by an older or a foreign one, or is missing.
        Unavailable: the database or ZooKeeper can't be reached, other brokers use it, a settings file is invalid, the
            default storage is not migrated to the cluster, or log or read models are from another release.
    """
    _check_kafka_options(config)
    sources_of_tokens(config, SystemClock(), token_policy(config), direct, only_remote=lambda: False)
    with private_umask(), DataDirectory(config.data) as directory:
        if not (migrating or config.clustered):
            check_not_migrated(directory.path)
        if config.database is None:
            check_registry(directory.path)
        renew_damaged(directory)
        lease = database_lease(config, cluster_identity(config, directory.broker))
        with contextlib.closing(lease.acquire(config.database_lock_timeout_s)):
            engine = database_engine(config)
            try:
                upgrade(engine)
                _clean_up_rebuild(engine)
                with damage_reported():
                    catch_up(engine)
                    if config.clustered:
                        _check_moved(engine)
                    elif found := list(mismatches(engine, directory.path)):
                        raise DataMismatch(found)
                    compared = compare_kafka(config, engine)
                    if compared.findings:
                        raise DataMismatch(compared.findings)
                    compared.warn_unreachable()
                _settle_unknown(directory.path)
                installation, mark = installation_id(engine), zookeeper_mark(engine)
                if not migrating:
                    make_key(config, engine)
                if config.clustered:
                    sequence = check_shared(config, directory, installation, mark)
                    raise_marks(engine, {ZOOKEEPER: {0: sequence}}, {})
            finally:
                engine.dispose()
        yield directory


def _settle_unknown(data: Path) -> None:
    """Recover the outcome of writes that were unknown when the last broker ended."""
    for path in data.glob("events*.db"):
        if Path(f"{path}-unknown").exists():
            with contextlib.closing(EventsDatabase(path)) as database:
                database.settle_unknown()


def _check_kafka_options(config: Config) -> None:
    options = read_options(config.kafka_options)
    if options and config.kafka is not None and not options_of(options, config.kafka):
        _log.warning(
            "no table in kafka_options matches the brokers of the setting kafka; no options applied", kafka=config.kafka
        )


def _check_moved(engine: Any) -> None:
    with reading_models(engine) as connection:
        storages = all_storages(connection)
    if any(storage.default and storage.storage_type == EMBEDDED for storage in storages):
        raise Unavailable(
            "The default storage of this database is in a data directory, which no node of a cluster can use. Let "
            "`rioni migrate` move that directory, and run it again if it was interrupted; or name another database."
        )


def _clean_up_rebuild(engine: Any) -> None:
    """Remove the tables of an interrupted rebuild that can't be resumed; a running rebuild is not affected."""
    with contextlib.suppress(Conflict), rebuild_lock(engine), writing(engine) as connection:
        if rebuilds.running(connection) is not None:
            _log.info("a rebuild was interrupted: the same command resumes it")
        elif dropped := remove(connection, WORKING):
            _log.info("removed the tables of an interrupted rebuild", tables=dropped)
