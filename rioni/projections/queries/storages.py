"""Queries over the storages."""

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.errors import NotFound
from rioni.domain.system.storages import StorageEntry
from rioni.projections.tables import STORAGES


def all_storages(connection: Connection) -> list[StorageEntry]:
    """All storages by id."""
    bodies = connection.scalars(select(STORAGES.c.body).order_by(STORAGES.c.id))
    return [msgspec.json.decode(body, type=StorageEntry) for body in bodies]


def get(connection: Connection, storage_id: str) -> StorageEntry:
    """One storage.

    Raises:
        NotFound: there is none of this id.
    """
    body = connection.scalar(select(STORAGES.c.body).where(STORAGES.c.id == storage_id))
    if body is None:
        raise NotFound(f"No storage with id {storage_id}")
    return msgspec.json.decode(body, type=StorageEntry)
