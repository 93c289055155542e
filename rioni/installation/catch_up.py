"""Brings the read models up to date with the log before a broker starts."""

import contextlib
from collections.abc import Iterator
from typing import Any

import structlog

from rioni.domain.aggregates import TOPICS
from rioni.domain.ports.event_log import LogEntry
from rioni.projections.custom import installed
from rioni.projections.custom_tables import prepare
from rioni.projections.fold import FOLD_VERSION
from rioni.projections.projector import OtherFold, Projector
from rioni.storage.log.event_log import SqlEventLog


REFOLDED_ENTRIES_MAX = 20_000
"""PERF: refolding this many at the start takes half a minute; Spark is faster for more, beside the broker."""
REFOLDED_TOLD_EVERY = 5_000

_log = structlog.get_logger("rioni.bootstrap")


def catch_up(engine: Any) -> None:
    """Apply new log entries to the read models; blocks.

    If an older version of the fold wrote them, they are rebuilt, all in one transaction.

    Raises:
        OtherFold: a newer version of the fold wrote them, or the log is too long for a rebuild here.
        Unavailable: the database can't be reached, or the log is in a newer format.
    """
    log, projector = SqlEventLog(engine, TOPICS), Projector()
    with contextlib.closing(log), log.transaction() as transaction:
        connection, end = transaction.connection, transaction.head.position
        found = projector.fold_version(connection)
        entries = transaction.entries(projector.position(connection))
        if found is not None and found != FOLD_VERSION:
            if found > FOLD_VERSION or end > REFOLDED_ENTRIES_MAX:
                raise OtherFold(found)
            _log.info("rebuilding read models from the log", written_by=found, version=FOLD_VERSION, entries=end)
            projector.clear(connection)
            entries = _told(transaction.entries(0), end)
        projector.apply(connection, entries)
        prepare(connection, installed())


def _told(entries: Iterator[LogEntry], end: int) -> Iterator[LogEntry]:
    for entry in entries:
        yield entry
        if entry.position % REFOLDED_TOLD_EVERY == 0:
            _log.info("rebuilding read models from the log", done=entry.position, entries=end)
