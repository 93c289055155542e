"""Commands that change the list of storages (registry contract 9)."""

from dataclasses import dataclass

from rioni.commands.repository import Repository
from rioni.domain.errors import Conflict
from rioni.domain.storage_entry import StorageCreated, StorageEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStorage:
    """Let event types be stored in one more place."""

    storage: StorageEntry


def create_storage(command: CreateStorage, repository: Repository) -> StorageEntry:
    """Add a storage.

    Raises:
        Conflict: the id is taken.
    """
    if repository.find("storage", command.storage.id) is not None:
        raise Conflict(f"A storage with id '{command.storage.id}' already exists.")
    repository.record(StorageCreated(id=command.storage.id, storage=command.storage))
    return command.storage
