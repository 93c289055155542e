"""Opens the event stores of storages of type kafka, where the driver is installed."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.thread_pool import StorePools, in_place
from rioni.domain.system.storages import StorageEntry
from rioni.files.extras import requirement
from rioni.storage.kafka.options import options_of, read_options


if TYPE_CHECKING:
    from rioni.storage.kafka.event_import import EventImporter
    from rioni.storage.kafka.topics.inspection import Inspected


def event_importer(
    storage: StorageEntry,
    default_servers: str | None,
    options_file: Path | None = None,
    *,
    request_timeout_s: float = 10.0,
) -> "EventImporter":
    """Create the importer of another store's events for a storage; raises as `opener` does."""
    try:
        from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - as above
        from rioni.storage.kafka.event_import import EventImporter  # noqa: PLC0415 - an extra
    except ImportError as ex:
        raise Unavailable(f"To move to Kafka needs its driver: pip install {requirement('cluster')}") from ex
    of_clients = partial(options_of, read_options(options_file))
    return EventImporter(
        connection_of(storage.configuration, default_servers, of_clients, request_timeout_s=request_timeout_s)
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
    try:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

        from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - as above
        from rioni.storage.kafka.topics.inspection import inspect  # noqa: PLC0415 - as above
    except ImportError as ex:
        raise Unavailable(
            f"The storage {storage.id} needs the driver of Kafka: pip install {requirement('cluster')}"
        ) from ex
    connection = connection_of(storage.configuration, default_servers, partial(options_of, read_options(options_file)))
    try:
        return inspect(connection, topics, ended, reach_s=reach_s, timeout_s=timeout_s)
    except KafkaException as ex:
        raise Unavailable(f"The storage {storage.id} can't be used: {ex.args[0].str()}.") from ex


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
        pools: returns the pools where the store of a storage blocks.
        options: further ones of `KafkaEventStore`.

    Raises:
        Unavailable: the file can't be used.
    """
    of_clients = partial(options_of, read_options(options_file))

    def open_store(storage: StorageEntry) -> EventStore:
        try:
            from confluent_kafka import KafkaException  # noqa: PLC0415 - an extra

            from rioni.storage.kafka.client import connection_of  # noqa: PLC0415 - as above
            from rioni.storage.kafka.events import KafkaEventStore  # noqa: PLC0415 - as above
            from rioni.storage.kafka.idempotence.idempotency_index import empty_index, open_index  # noqa: PLC0415 - as above
        except ImportError as ex:
            raise Unavailable(
                f"The storage {storage.id} needs the driver of Kafka: pip install {requirement('cluster')}"
            ) from ex
        connection = connection_of(
            storage.configuration,
            default_servers,
            of_clients,
            request_timeout_s=request_timeout_s,
            refuses_late=refuses_late,
        )
        try:
            index = empty_index(storage.id) if database is None else open_index(database, storage.id)
            return KafkaEventStore(connection, index, pools=pools(storage.id), **options)
        except KafkaException as ex:
            raise Unavailable(
                f"The storage {storage.id} can't be used: {ex.args[0].str()}. Check the file kafka_options."
            ) from ex

    return open_store
