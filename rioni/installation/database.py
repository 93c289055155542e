"""Opens the registry database chosen by the settings, and its lease."""

import contextlib
import socket
from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection, Engine

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.projections.tables import lock_against_swap
from rioni.storage.embedded.data_directory import check_not_restoring, registry_missing
from rioni.storage.sql import engines
from rioni.storage.sql.database_locks import ClusterIdentity, DatabaseLease
from rioni.storage.sql.engines import create_engine
from rioni.storage.sql.migration import check_current
from rioni.storage.sql.read_only import read_only_engine


def database_url(config: Config) -> str:
    """Return the URL of the database of the log and the read models."""
    return config.database or f"sqlite:///{config.data.absolute() / 'registry.db'}"


def database_engine(config: Config) -> Engine:
    """Create the database engine; raises as `rioni.storage.sql.engines.create_engine`."""
    return create_engine(
        database_url(config),
        lock_wait_s=config.database_lock_timeout_s,
        connections_max=config.database_connections_max,
    )


def check_exists(config: Config) -> None:
    """Check that the data exist.

    Raises:
        Unavailable: they do not exist, or are being restored.
    """
    check_not_restoring(config.data)
    if config.database is None and not (config.data / "registry.db").exists():
        if missing := registry_missing(config.data):
            raise Unavailable(f"{missing} Restore a backup: `rioni restore`.")
        raise Unavailable(
            f"There is no data in {config.data}. Name the data directory of a broker: --data or RIONI_DATA."
        )


@contextlib.contextmanager
def opened_for_reading(config: Config) -> Iterator[Engine]:
    """Open the database of the log and the read models without changing anything, next to a broker or on a copy.

    Raises:
        Unavailable: the data do not exist, can't be read, are of another release, or are damaged.
    """
    check_exists(config)
    with read_only_engine(database_url(config)) as engine:
        check_current(engine)
        with damage_reported():
            yield engine


DAMAGE = (ArithmeticError, LookupError, TypeError, ValueError, msgspec.MsgspecError)
"""The errors that reading damaged rows leads to; errors of reaching the database are others."""


@contextlib.contextmanager
def damage_reported() -> Iterator[None]:
    """Turn errors of damaged rows, whatever they lead to, into one with advice."""
    try:
        yield
    except DAMAGE as ex:
        first_line = f"{type(ex).__name__}: {ex}".splitlines()[0]
        raise Unavailable(
            f"The data are damaged or were changed: a row can't be read ({first_line}). Run `rioni verify`, which "
            "names the damage."
        ) from ex


@contextlib.contextmanager
def reading_models(engine: Engine) -> Iterator[Connection]:
    """Open a read transaction on the read models; raises as `engines.reading`, waits for a rebuild's swap."""
    with engines.reading(engine) as connection:
        lock_against_swap(connection)
        yield connection


def database_lease(config: Config, party: ClusterIdentity) -> DatabaseLease:
    """Create the lease of the database for a cluster identity; it is not taken yet."""
    return DatabaseLease(database_engine(config), party)


def cluster_identity(config: Config, broker: str) -> ClusterIdentity:
    """Return the identity of brokers that share a database: the nodes of a cluster, or the processes of one broker.

    NOTE: ZooKeeper servers may have several names, so two ensembles with the same path are not distinguished.

    Args:
        config: the settings.
        broker: unique id of this run of `rioni serve`.
    """
    here = socket.gethostname()
    if config.zookeeper is None:
        return ClusterIdentity(broker, f"a broker without zookeeper on {here}")
    path = "/" + config.zookeeper.partition("/")[2].strip("/")
    return ClusterIdentity(f"zookeeper {path}", f"a node with zookeeper path {path} on {here}")


def command_identity(command: str, broker: str) -> ClusterIdentity:
    """Return the identity of one run of a command that excludes all nodes of a cluster."""
    return ClusterIdentity(broker, f"rioni {command} on {socket.gethostname()}")
