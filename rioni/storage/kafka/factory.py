"""Opens the event stores of storages of type kafka, where the driver is installed, with their options."""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.host import StorePools, in_place
from rioni.domain.system.storages import StorageEntry
from rioni.files.extras import requirement
from rioni.files.plain import read_toml_of


if TYPE_CHECKING:
    from rioni.storage.kafka.event_import import EventImporter
    from rioni.storage.kafka.topics.inspection import Inspected


# --- Reads the client options of Kafka, mainly credentials, from the file in the setting `kafka_options` ---

Options = Mapping[frozenset[str], Mapping[str, str]]
"""The librdkafka options of each table of the file, by the set of brokers in its header."""

PREFIXES = ("broker.address.", "reconnect.backoff.", "sasl.", "socket.", "ssl.")
NAMES = frozenset({"client.dns.lookup", "client.id", "client.rack", "compression.type", "security.protocol"})
"""Options that the file may set; those that affect delivery, order and reading are reserved to the event store."""

# They start a program or load a library.
_FORBIDDEN = frozenset({"sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers"})


def read_options(path: Path | None) -> Options:
    """Read the file, if one is set; blocks on the disk. No error shows a value, as that may be a password.

    Raises:
        Unavailable: it can't be read, or sets an option that is not allowed.
    """
    if path is None:
        return {}
    tables = read_toml_of("kafka_options", path)
    found: dict[frozenset[str], Mapping[str, str]] = {}
    for servers, table in tables.items():
        if not isinstance(table, dict) or not all(":" in each for each in _servers(servers)):
            raise Unavailable(
                f"kafka_options: {servers!r} in {path} must be a table header that names brokers: "
                '["host:port,host:port"].'
            )
        options = dict(_flat("", table))
        for name, value in options.items():
            if name in _FORBIDDEN or not (name in NAMES or name.startswith(PREFIXES)):
                raise Unavailable(
                    f"kafka_options: {path} must not set {name!r}. It may set {', '.join(sorted(NAMES))} and what "
                    f"begins with {', '.join(PREFIXES)}; but not {', '.join(sorted(_FORBIDDEN))}."
                )
            if not isinstance(value, str | int):
                raise Unavailable(f"kafka_options: {name!r} in {path} must be a string, an integer, true or false.")
        found[_servers(servers)] = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()
        }
    return found


def options_of(options: Options, bootstrap_servers: str) -> Mapping[str, str]:
    """Return the options of the table that lists all of these brokers; empty if no table does.

    Clients that may create storages choose their brokers, and must not obtain credentials for other brokers that way.
    """
    wanted = _servers(bootstrap_servers)
    return next((each for servers, each in options.items() if wanted and wanted <= servers), {})


def _servers(text: str) -> frozenset[str]:
    return frozenset(item.strip().lower() for item in text.split(",") if item.strip())


def _flat(prefix: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested tables by their dotted names, which TOML parses as nested tables."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


# --- Opens the event stores of storages of type kafka, if the driver is installed ---


@contextlib.contextmanager
def _opening(storage: StorageEntry) -> Iterator[None]:
    """Explain why the store of a storage can't be opened: the driver is an extra, and may refuse the options."""
    try:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra
    except ImportError as ex:
        raise Unavailable(
            f"The storage {storage.id} needs the driver of Kafka: pip install {requirement('cluster')}"
        ) from ex
    try:
        yield
    except KafkaException as ex:
        raise Unavailable(
            f"The storage {storage.id} can't be used: {ex.args[0].str()}. Check the file kafka_options."
        ) from ex


def event_importer(
    storage: StorageEntry,
    default_servers: str | None,
    options_file: Path | None = None,
    *,
    request_timeout_s: float = 10.0,
) -> "EventImporter":
    """Create the importer of another store's events for a storage; raises as `opener` does."""
    with _opening(storage):
        from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - of an extra
        from rioni.storage.kafka.event_import import EventImporter  # noqa: PLC0415 - as above

        options = partial(options_of, read_options(options_file))
        return EventImporter(
            connection_of(storage.configuration, default_servers, options, request_timeout_s=request_timeout_s)
        )


def inspected(
    storage: StorageEntry,
    default_servers: str | None,
    options_file: Path | None = None,
    *,
    topics: Collection[str],
    ended: Collection[str],
    reach_s: float,
    timeout_s: float,
) -> "Inspected":
    """Read a storage's Kafka cluster; see `rioni.storage.kafka.topics.inspection.inspect`.

    No client remains open, so the process may be forked afterwards.

    Raises:
        Unavailable: no broker answers in time, the driver is not installed, or the settings can't be used.
    """
    with _opening(storage):
        from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - of an extra
        from rioni.storage.kafka.topics.inspection import inspect  # noqa: PLC0415 - as above

        options = partial(options_of, read_options(options_file))
        connection = connection_of(storage.configuration, default_servers, options)
        return inspect(connection, topics, ended, reach_s=reach_s, timeout_s=timeout_s)


def opener(
    default_servers: str | None,
    options_file: Path | None = None,
    *,
    database: str | None,
    request_timeout_s: float = 10.0,
    refuses_late: bool = True,
    pools: Callable[[str], StorePools] = in_place,
    **options: Any,
) -> Callable[[StorageEntry], EventStore]:
    """Return a function that opens the store of a storage.

    Args:
        default_servers: the brokers of storages that do not set them.
        options_file: client options of the brokers, by bootstrap servers.
        database: the URL of the database of the idempotency index; None if nothing will be appended.
        request_timeout_s: timeout of all requests except appends.
        refuses_late: whether created topics reject records with old timestamps.
        pools: returns the pools in which the store of a storage blocks.
        options: further ones of `KafkaEventStore`.

    Raises:
        Unavailable: the file can't be used.
    """
    of_clients = partial(options_of, read_options(options_file))

    def open_store(storage: StorageEntry) -> EventStore:
        with _opening(storage):
            from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - of an extra
            from rioni.storage.kafka.events import KafkaEventStore  # noqa: PLC0415 - as above
            from rioni.storage.kafka.idempotence.idempotency_index import empty_index, open_index  # noqa: PLC0415 - as above

            connection = connection_of(
                storage.configuration,
                default_servers,
                of_clients,
                request_timeout_s=request_timeout_s,
                refuses_late=refuses_late,
            )
            index = empty_index(storage.id) if database is None else open_index(database, storage.id)
            return KafkaEventStore(connection, index, pools=pools(storage.id), **options)

    return open_store
