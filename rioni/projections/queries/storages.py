"""Queries over the storages."""

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.errors import NotFound
from rioni.domain.system.storages import StorageEntry
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import STORAGES


STORAGE = "storage"


def all_storages(connection: Connection, at: Moment | None = None) -> list[StorageEntry]:
    """All storages by id, now or at a moment of the past."""
    live = select(STORAGES.c.body).order_by(STORAGES.c.id)
    bodies = connection.scalars(live) if at is None else past.states(connection, STORAGE, at)
    return [msgspec.json.decode(body, type=StorageEntry) for body in bodies]


def get(connection: Connection, storage_id: str, at: Moment | None = None) -> StorageEntry:
    """One storage, now or at a moment of the past.

    Raises:
        NotFound: there is no storage with this id.
    """
    body = past.body_of(connection, STORAGES, STORAGE, storage_id, at)
    if body is None:
        raise NotFound(f"No storage with id {storage_id}")
    return msgspec.json.decode(body, type=StorageEntry)
