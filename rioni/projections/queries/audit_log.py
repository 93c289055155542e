"""Queries over the audit log: who changed what, when, from where, with both states."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.events import client_parts, realm_of
from rioni.projections.queries import positions
from rioni.projections.queries.audit_pages import of_realm
from rioni.projections.tables import AUDIT_LOG


ENTRIES_PER_READ = 500
"""With the states before and after, each of which may have 256 kB."""

Begin = Callable[[], AbstractContextManager[Connection]]


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are asked for; None asks for all."""

    since: str | None = None
    """RFC 3339, included."""
    until: str | None = None
    """RFC 3339, not included."""
    actor: str | None = None
    realm: str | None = None
    """Of the actor."""
    resource: str | None = None
    """A natural key such as an event type's name, or `<kind>:<key>`."""


def entries(begin: Begin, wanted: AuditFilter, *, after: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the entries after a log position that match, in order, `before` and `after` as JSON text.

    The address of the client, what it calls itself, and the realm of its subject are `client`, `user_agent`, `realm`.

    Args:
        begin: begins a transaction that reads. There are many short ones, so that slow consumers of the entries don't
            keep a transaction open.
        wanted: which ones.
        after: the position.
    """
    with begin() as connection:
        first, last = positions.recorded_within(connection, wanted.since, wanted.until)
    after = max(after, first - 1)
    while page := _page(begin, wanted, after, last):
        yield from page
        after = page[-1]["position"]


def resources(connection: Connection) -> list[tuple[str, str]]:
    """The kind and the key of whatever has entries."""
    columns = AUDIT_LOG.c
    rows = connection.execute(select(columns.resource_type, columns.resource).distinct())
    return [(row.resource_type, row.resource) for row in rows]


def _page(begin: Begin, wanted: AuditFilter, after: int, last: int | None) -> list[dict[str, Any]]:
    columns = AUDIT_LOG.c
    query = select(AUDIT_LOG).where(columns.position > after).order_by(columns.position).limit(ENTRIES_PER_READ)
    if last is not None:
        query = query.where(columns.position <= last)
    if wanted.actor is not None:
        query = query.where(columns.actor == wanted.actor)
    if wanted.realm is not None:
        query = query.where(of_realm(columns.client, wanted.realm))
    if wanted.resource is not None:
        kind, colon, key = wanted.resource.partition(":")
        matches = (columns.resource == key) & (columns.resource_type == kind)
        query = query.where(matches | (columns.resource == wanted.resource) if colon else columns.resource == kind)
    with begin() as connection:
        return [with_client_parts(dict(row)) for row in connection.execute(query).mappings()]


def with_client_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """An entry whose client is three members: its address `client`, `user_agent`, and `realm`, empty where unknown."""
    client, user_agent = client_parts(row["client"])
    return {**row, "client": client, "user_agent": user_agent, "realm": realm_of(row["client"])}
