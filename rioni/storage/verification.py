"""Checks the internal log: hash chain, positions, versions, topics and end."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Engine, Row, select

from rioni.domain.chain import GENESIS, Fields, link
from rioni.domain.events import DomainEvent
from rioni.storage.log_tables import HEAD, LOG
from rioni.storage.sql import reading


ROWS_PER_READ = 1_000


class Finding(NamedTuple):
    """Something in the log that should not be so."""

    position: int
    """Where it shows."""
    text: str
    """What it is."""

    def __str__(self) -> str:
        return f"position {self.position}: {self.text}"


def verify(engine: Engine, topics: Mapping[str, type[DomainEvent]]) -> Iterator[Finding]:
    """Yield everything that is wrong with the log; reads all of it, in constant memory but for the versions of streams.

    Args:
        engine: of the database.
        topics: all events that may stand in the log.

    Raises:
        Unavailable: the database can't be read.
    """
    expected, last = 1, GENESIS
    versions: dict[str, int] = {}
    with reading(engine) as connection:
        for row in connection.execution_options(yield_per=ROWS_PER_READ).execute(select(LOG).order_by(LOG.c.position)):
            if row.position != expected:
                yield Finding(expected, f"{_entries(row.position - expected)} missing before position {row.position}")
            yield from _check_row(row, last, versions.get(row.stream, 0), topics)
            versions[row.stream] = row.version
            expected, last = row.position + 1, bytes(row.hash)
        head = connection.execute(select(HEAD.c.position, HEAD.c.hash)).one()
    if head.position >= expected:
        yield Finding(expected, f"the end is cut off: {_entries(head.position + 1 - expected)} missing")
    elif (head.position, bytes(head.hash)) != (expected - 1, last):
        yield Finding(head.position, f"the head says {head.position}, the log ends at {expected - 1} with another hash")


def _check_row(
    row: Row[Any], previous: bytes, version: int, topics: Mapping[str, type[DomainEvent]]
) -> Iterator[Finding]:
    fields: Fields = (*tuple(row)[:-2], bytes(row.data))
    if link(previous, fields) != bytes(row.hash):
        yield Finding(row.position, "the hash does not fit: this entry, or one before it, is not what was written")
    if row.version != version + 1:
        yield Finding(row.position, f"version {row.version} of stream {row.stream} follows version {version}")
    if row.topic not in topics:
        yield Finding(row.position, f"the topic {row.topic} is unknown to this version of the broker")
        return
    try:
        topics[row.topic].decode(bytes(row.data))
    except msgspec.MsgspecError as ex:
        yield Finding(row.position, f"the data of {row.topic} can't be read: {ex}")


def _entries(count: int) -> str:
    return "1 entry is" if count == 1 else f"{count} entries are"
