"""The storages that timelines can live in, as `/storages` lists them.

Source: reference settings-and-storages#storage-members.
"""

import re
from typing import Any

import msgspec

from rioni.domain.errors import Invalid
from rioni.domain.events import DomainEvent
from rioni.domain.system.storage_configuration import check_configuration, kept_configuration


DEFAULT_STORAGE = "default"
"""The id of the storage that a new broker has."""

EMBEDDED, KAFKA = "embedded", "kafka"
STORAGE_TYPES = (EMBEDDED, KAFKA)

ID_CHARACTERS_MAX = 36
_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{ID_CHARACTERS_MAX}}}")


class StorageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A storage."""

    id: str
    storage_type: str
    """`embedded` or `kafka`."""
    default: bool
    """Whether new event types begin here."""
    configuration: dict[str, Any] = {}


class StorageCreated(DomainEvent, frozen=True, kw_only=True):
    """A storage was added."""

    TOPIC = "storage.created"
    KEY = "id"

    id: str
    storage: StorageEntry


class DefaultStorageChanged(DomainEvent, frozen=True, kw_only=True):
    """New event types begin in this storage from now on, or no longer."""

    TOPIC = "storage.default-changed"
    KEY = "id"

    id: str
    default: bool


class StorageMoved(DomainEvent, frozen=True, kw_only=True):
    """What the storage holds lies in another kind of store from now on, in the same topics at the same positions."""

    TOPIC = "storage.moved"
    KEY = "id"

    id: str
    storage_type: str


class StorageDeleted(DomainEvent, frozen=True, kw_only=True):
    """The storage was deleted."""

    TOPIC = "storage.deleted"
    KEY = "id"

    id: str


def evolve(state: StorageEntry | None, event: DomainEvent) -> StorageEntry | None:
    """The state after an event; total."""
    match event:
        case StorageCreated(storage=storage):
            return storage
        case DefaultStorageChanged(default=default) if state is not None:
            return msgspec.structs.replace(state, default=default)
        case StorageMoved(storage_type=storage_type) if state is not None:
            return msgspec.structs.replace(state, storage_type=storage_type)
        case StorageDeleted():
            return None
        case _:
            return state


def check_storage(storage: StorageEntry) -> None:
    """Check what a client submits.

    Raises:
        Invalid: the id could not name a file, there is no such type of storage, or its configuration can't be read.
    """
    if not _ID.fullmatch(storage.id):
        raise Invalid(
            f"The id of a storage has 1 to {ID_CHARACTERS_MAX} characters, letters, digits, '.', '_' and '-', "
            f"not {storage.id!r}"
        )
    if storage.storage_type not in STORAGE_TYPES:
        raise Invalid(f"Type '{storage.storage_type}' is not a valid storage type")
    check_configuration(storage.configuration)


def shown(storage: StorageEntry) -> StorageEntry:
    """A storage without credentials: older logs have configurations as submitted."""
    return msgspec.structs.replace(storage, configuration=kept_configuration(storage.configuration))
