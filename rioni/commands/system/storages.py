"""Commands that change the list of storages (reference settings-and-storages#storage-members)."""

from dataclasses import dataclass

import msgspec

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.errors import Conflict, InUse, NotFound
from rioni.domain.system.storages import (
    DefaultStorageChanged,
    StorageCreated,
    StorageDeleted,
    StorageEntry,
    StorageMoved,
    check_storage,
    shown,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStorage:
    """Add a storage for timelines."""

    storage: StorageEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDefaultStorage:
    """Make a storage the default of new event types."""

    storage_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveStorage:
    """Change the type of a storage whose contents were copied to another kind of store."""

    storage_id: str
    storage_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStorage:
    """Delete a storage."""

    storage_id: str


def create_storage(command: CreateStorage, unit_of_work: UnitOfWork) -> StorageEntry:
    """Add a storage. Only known members of its configuration are kept, without credentials: the log is permanent.

    Raises:
        Invalid: id, type or configuration can't be used.
        Conflict: the id is taken.
    """
    submitted = command.storage
    check_storage(submitted)
    if unit_of_work.find("storage", submitted.id) is not None:
        raise Conflict(f"A storage with id '{submitted.id}' already exists.")
    storage = shown(submitted)
    if storage.default:
        _no_default(unit_of_work)
    unit_of_work.record(StorageCreated(id=storage.id, storage=storage))
    return storage


def set_default_storage(command: SetDefaultStorage, unit_of_work: UnitOfWork) -> StorageEntry:
    """Make a storage the default: event types that are created from now on begin in it.

    Raises:
        NotFound: there is no such storage.
    """
    storage = _stored(unit_of_work, command.storage_id)
    if storage.default:
        return storage
    _no_default(unit_of_work)
    unit_of_work.record(DefaultStorageChanged(id=storage.id, default=True))
    return msgspec.structs.replace(storage, default=True)


def move_storage(command: MoveStorage, unit_of_work: UnitOfWork) -> None:
    """Read and write the events of a storage in another kind of store from now on.

    Raises:
        NotFound: there is no such storage.
    """
    storage = _stored(unit_of_work, command.storage_id)
    if storage.storage_type != command.storage_type:
        unit_of_work.record(StorageMoved(id=storage.id, storage_type=command.storage_type))


def delete_storage(command: DeleteStorage, unit_of_work: UnitOfWork) -> None:
    """Delete a storage that holds no events and is not the default one.

    Raises:
        NotFound: there is no such storage.
        InUse: it holds events, or is the default one.
    """
    storage: StorageEntry | None = unit_of_work.find("storage", command.storage_id)
    if storage is None:
        raise NotFound(f"Tried to remove storage that doesn't exist, id: {command.storage_id}")
    if storage.default or unit_of_work.holds_events(storage.id):
        raise InUse(f"Can't delete storage as it is still used, id: {storage.id}")
    unit_of_work.record(StorageDeleted(id=storage.id))


def _stored(unit_of_work: UnitOfWork, storage_id: str) -> StorageEntry:
    storage: StorageEntry | None = unit_of_work.find("storage", storage_id)
    if storage is None:
        raise NotFound(f"Storage with id {storage_id} is not found")
    return storage


def _no_default(unit_of_work: UnitOfWork) -> None:
    for storage in unit_of_work.storages():
        if storage.default:
            unit_of_work.record(DefaultStorageChanged(id=storage.id, default=False))
