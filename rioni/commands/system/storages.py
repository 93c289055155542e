"""Commands that change the list of storages (reference settings-and-storages#storage-members), and the settings."""

from dataclasses import dataclass

import msgspec

from rioni.commands.unit_of_work import UnitOfWork
from rioni.domain.errors import Conflict, InUse, InvalidFields, Malformed, NotFound
from rioni.domain.limits import ATTRIBUTES_MAX, size_violations
from rioni.domain.system.settings import (
    BLACKLIST_TYPES,
    Admins,
    AdminsChanged,
    BlacklistEntryAdded,
    BlacklistEntryRemoved,
    FeatureSwitched,
    LossAccepted,
    feature_named,
)
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


# --- Commands that change the broker's settings (reference settings-and-storages#administrators) ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAdmins:
    """Replace the list of the broker's administrators."""

    admins: Admins


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBlacklistEntry:
    """Block an application or an event type."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBlacklistEntry:
    """Unblock an application or an event type."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFeature:
    """Switch a feature on or off."""

    feature: str
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptLoss:
    """Record that an operator accepted inconsistent stores."""

    findings: tuple[str, ...]
    reason: str


def accept_loss(command: AcceptLoss, unit_of_work: UnitOfWork) -> None:
    """Record an operator's decision."""
    unit_of_work.record(LossAccepted(findings=command.findings, reason=command.reason))


def set_admins(command: SetAdmins, unit_of_work: UnitOfWork) -> Admins:
    """Replace the administrators; the configured default administrator stays one, and is never stored.

    Raises:
        InvalidFields: a list is empty, or too long.
    """
    lists = msgspec.structs.asdict(command.admins)
    violations: list[tuple[str, str]] = []
    for name, attributes in lists.items():
        violations += size_violations(name, attributes, ATTRIBUTES_MAX)
        if not attributes:
            violations.append((name, "must contain at least one attribute"))
    InvalidFields.check(violations)
    default = unit_of_work.grants.default_admin
    admins = Admins(**{name: tuple(each for each in found if each != default) for name, found in lists.items()})
    if admins != unit_of_work.settings().admins:
        unit_of_work.record(AdminsChanged(admins=admins))
    return admins


def add_blacklist_entry(command: AddBlacklistEntry, unit_of_work: UnitOfWork) -> None:
    """Block an application or an event type; blocking it again changes nothing."""
    _check_type(command.type)
    if (command.type, command.name) not in unit_of_work.settings().blacklist:
        unit_of_work.record(BlacklistEntryAdded(type=command.type, name=command.name))


def remove_blacklist_entry(command: RemoveBlacklistEntry, unit_of_work: UnitOfWork) -> None:
    """Unblock an application or an event type; repeating it changes nothing."""
    _check_type(command.type)
    if (command.type, command.name) in unit_of_work.settings().blacklist:
        unit_of_work.record(BlacklistEntryRemoved(type=command.type, name=command.name))


def switch_feature(command: SwitchFeature, unit_of_work: UnitOfWork) -> None:
    """Switch a feature; switching it to its current state changes nothing.

    Raises:
        Malformed: there is no such feature.
    """
    feature = feature_named(command.feature)
    if (feature in unit_of_work.settings().features) != command.enabled:
        unit_of_work.record(FeatureSwitched(feature=feature, enabled=command.enabled))


def _check_type(blacklist_type: str) -> None:
    if blacklist_type not in BLACKLIST_TYPES:
        raise Malformed(f"Illegal enum value: '{blacklist_type}'. Possible values: [{', '.join(BLACKLIST_TYPES)}]")
