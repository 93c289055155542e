"""What happens before the worker processes start: the data directory is locked, the database brought up to date.

The database is kept from others meanwhile. Then it is let go, because a connection must not be forked: each worker
takes it again for itself. For the same reason the session with ZooKeeper ends at once that shows whether there can be
one: a worker could not say so in one line.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import structlog

from rioni.bootstrap.adapters import check_shared
from rioni.bootstrap.database import database_engine, occupancy, serving
from rioni.config import Config
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import Unavailable
from rioni.domain.storage_entry import EMBEDDED
from rioni.projections.projector import Projector
from rioni.projections.storages import all_storages
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.data_directory import DataDirectory
from rioni.storage.event_log import SqlEventLog
from rioni.storage.kafka.options import options_of, read_options
from rioni.storage.migration import upgrade
from rioni.storage.sql import reading
from rioni.storage.tokens.sources import sources_of_tokens


_log = structlog.get_logger("rioni.bootstrap")


@contextlib.contextmanager
def prepare(config: Config) -> Iterator[DataDirectory]:
    """Lock the data directory, and bring the database to the present schema and the read models up to the log.

    Raises:
        DataDirectoryError: the data directory can't be used.
        Unavailable: the database or ZooKeeper can't be reached, others use it, a file of settings can't be used, or
            what a node is to serve has not been moved to its cluster.
    """
    _check_kafka_options(config)
    sources_of_tokens(config, SystemClock(), only_remote=lambda: False)
    with DataDirectory(config.data) as directory:
        with contextlib.closing(occupancy(config, serving(config, directory.broker)).take(config.database_wait_s)):
            engine = database_engine(config)
            try:
                upgrade(engine)
                catch_up(engine)
                if config.clustered:
                    _check_moved(engine)
            finally:
                engine.dispose()
        if config.clustered:
            check_shared(config, directory)
        yield directory


def _check_kafka_options(config: Config) -> None:
    options = read_options(config.kafka_options)
    if options and config.kafka is not None and not options_of(options, config.kafka):
        _log.warning("kafka_options has no table that names all brokers of kafka: they get none", kafka=config.kafka)


def _check_moved(engine: Any) -> None:
    with reading(engine) as connection:
        storages = all_storages(connection)
    if any(storage.default and storage.storage_type == EMBEDDED for storage in storages):
        raise Unavailable(
            "The default storage of this database is in a data directory, which no node of a cluster can use. Let "
            "`rioni migrate` move that directory, and run it again if it was interrupted; or name another database."
        )


def catch_up(engine: Any) -> None:
    """Fold into the read models what the log has beyond them; blocks."""
    log, projector = SqlEventLog(engine, TOPICS), Projector()
    with contextlib.closing(log), log.transaction() as transaction:
        projector.apply(transaction.connection, transaction.entries(projector.position(transaction.connection)))
