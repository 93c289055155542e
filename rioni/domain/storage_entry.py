"""The storages that timelines can live in, as `/storages` lists them (registry contract 9)."""

from typing import Any

import msgspec

from rioni.domain.events import DomainEvent


DEFAULT_STORAGE = "default"


class StorageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One place where events can be stored."""

    id: str
    storage_type: str
    """`embedded` or `kafka`."""
    default: bool
    """Whether new event types begin here."""
    configuration: dict[str, Any] = {}


class StorageCreated(DomainEvent, frozen=True, kw_only=True):
    """A storage may be used from now on."""

    TOPIC = "storage.created"
    KEY = "id"

    id: str
    storage: StorageEntry


def evolve(state: StorageEntry | None, event: DomainEvent) -> StorageEntry | None:
    """The state after an event; total."""
    match event:
        case StorageCreated(storage=storage):
            return storage
        case _:
            return state
