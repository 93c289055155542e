"""Writes histories into a database: the internal log with its hash chain, and the live read models."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select, update

from rioni.domain.hash_chain import GENESIS, LogHead, link
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.projector import Projector
from rioni.projections.tables import READ_MODELS
from rioni.sql.log_tables import HEAD, LOG, LOG_TABLES, TRACKING


def create_tables(engine: Engine) -> None:
    """Create the tables of the log and of the read models, empty."""
    with engine.begin() as connection:
        LOG_TABLES.create_all(connection)
        READ_MODELS.create_all(connection)
        connection.execute(insert(HEAD).values(id=1, position=0, hash=GENESIS))


def clear(engine: Engine) -> None:
    """Empty all tables again."""
    with engine.begin() as connection:
        for table in (LOG, TRACKING, *READ_MODELS.sorted_tables):
            connection.execute(delete(table))
        connection.execute(update(HEAD).values(position=0, hash=GENESIS))


def rows(entries: Iterable[LogEntry], previous: bytes) -> Iterator[Sequence[Any]]:
    """The rows of the log for entries; each hash continues the previous one."""
    for entry in entries:
        origin = entry.origin
        fields = (
            entry.position,
            str(entry.stream),
            entry.version,
            entry.event.TOPIC,
            origin.recorded_at,
            origin.actor,
            origin.client,
            origin.flow_id,
            origin.command_id,
            entry.event.encode(),
        )
        previous = link(previous, fields)
        yield *fields, previous


def append(connection: Connection, entries: Iterable[LogEntry], *, project: bool = True) -> LogHead:
    """Append to the log in the caller's transaction, and to the live read models if `project`."""
    head = LogHead(*connection.execute(select(HEAD.c.position, HEAD.c.hash).with_for_update()).one())
    entries = iter(entries)
    while part := list(islice(entries, 5_000)):
        stored = list(rows(part, head.hash))
        connection.execute(insert(LOG), [dict(zip(LOG.columns.keys(), row, strict=True)) for row in stored])
        head = LogHead(stored[-1][0], stored[-1][-1])
        if project:
            Projector().apply(connection, part)
    connection.execute(update(HEAD).values(position=head.position, hash=head.hash))
    return head
