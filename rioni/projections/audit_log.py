"""Queries over the audit log: who changed what, when, from where, with both states."""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from rioni.projections.tables import AUDIT_LOG


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are asked for; None asks for all."""

    since: str | None = None
    """RFC 3339, included."""
    until: str | None = None
    """RFC 3339, not included."""
    actor: str | None = None
    resource: str | None = None
    """A natural key such as an event type's name, or `<kind>:<key>`."""


def entries(connection: Connection, wanted: AuditFilter, *, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries behind a log position that match, in order, `before` and `after` as JSON text."""
    columns = AUDIT_LOG.c
    query = select(AUDIT_LOG).where(columns.position > after).order_by(columns.position)
    if wanted.since is not None:
        query = query.where(columns.recorded_at >= wanted.since)
    if wanted.until is not None:
        query = query.where(columns.recorded_at < wanted.until)
    if wanted.actor is not None:
        query = query.where(columns.actor == wanted.actor)
    if wanted.resource is not None:
        kind, colon, key = wanted.resource.partition(":")
        matches = (columns.resource == key) & (columns.resource_type == kind)
        query = query.where(matches | (columns.resource == wanted.resource) if colon else columns.resource == kind)
    for row in connection.execution_options(yield_per=1_000).execute(query):
        yield dict(row._mapping)  # noqa: SLF001 - the public name of SQLAlchemy's row mapping
