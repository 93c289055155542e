"""Imports the idempotency keys of another store, or of the same store in another database."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, delete, func, insert, select

from rioni.domain.errors import Conflict
from rioni.storage.embedded.events import stored_once
from rioni.storage.embedded.events.database import EventsDatabase
from rioni.storage.kafka.idempotence.idempotency_index import ATTEMPTS, LOOKUP_MAX, NAMES, IdempotencyIndex
from rioni.storage.sql.engines import reading, writing


ROWS = 5_000
"""Number of rows that one transaction adds."""

Rows = Sequence[Mapping[str, Any]]
"""Rows of one table, by column."""
Pages = Callable[[], Iterator[Rows]]
"""Yields all rows, starting over at each call."""


def of_embedded(database: EventsDatabase, engine: Engine, store: str) -> Pages:
    """Return the idempotency keys of an embedded store, as rows of the index of the store with this id."""
    index = IdempotencyIndex(engine, store)
    stored = {"store": store, "attempt": None, "partition": 0, "place": 0}

    def pages() -> Iterator[Rows]:
        for batches in stored_once.key_pages(database):
            yield [
                {"hash": index.batch(name), "digest": digest, "recorded_at_ms": at_ms, **stored}
                for name, digest, at_ms in batches
            ]
        for events in stored_once.id_pages(database):
            yield [
                {"hash": index.event_of(hashed), "digest": None, "recorded_at_ms": at_ms, **stored}
                for hashed, at_ms in events
            ]

    return pages


def of_kafka(engine: Engine, store: str) -> tuple[Pages, Rows]:
    """Return the idempotency keys of a Kafka store from another database, and its unfinished attempts."""

    def pages() -> Iterator[Rows]:
        after = b""
        while True:
            query = select(NAMES).where(NAMES.c.store == store, NAMES.c.hash > after).order_by(NAMES.c.hash)
            with reading(engine) as connection:
                rows = connection.execute(query.limit(ROWS)).mappings().all()
            if not rows:
                return
            yield [dict(row) for row in rows]
            after = rows[-1]["hash"]

    with reading(engine) as connection:
        attempts = connection.execute(select(ATTEMPTS).where(ATTEMPTS.c.store == store)).mappings().all()
    return pages, [dict(row) for row in attempts]


def import_keys(engine: Engine, store: str, pages: Pages, attempts: Rows = ()) -> None:
    """Replace a store's idempotency keys with these, and verify them; it must not be in use. Blocks.

    A repeated call starts over, as the keys of an earlier one may be outdated.

    Raises:
        Conflict: the stored keys differ from the source.
        Unavailable: a database can't be used.
    """
    with writing(engine) as connection:
        for table in (NAMES, ATTEMPTS):
            connection.execute(delete(table).where(table.c.store == store))
        if attempts:
            connection.execute(insert(ATTEMPTS), list(attempts))
    for rows in pages():
        with writing(engine) as connection:
            connection.execute(insert(NAMES), list(rows))
    _compare(engine, store, pages())


def _compare(engine: Engine, store: str, pages: Iterable[Rows]) -> None:
    count = 0
    for rows in pages:
        count += len(rows)
        for first in range(0, len(rows), LOOKUP_MAX):
            wanted = {row["hash"]: dict(row) for row in rows[first : first + LOOKUP_MAX]}
            with reading(engine) as connection:
                found = connection.execute(select(NAMES).where(NAMES.c.hash.in_(wanted))).mappings()
                if {row["hash"]: dict(row) for row in found} != wanted:
                    raise Conflict(f"Idempotency keys of the storage {store} differ from the source after migration")
    with reading(engine) as connection:
        if connection.scalar(select(func.count()).select_from(NAMES).where(NAMES.c.store == store)) != count:
            raise Conflict(f"The storage {store} has more idempotency keys than the source")
