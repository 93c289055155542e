"""The storages that timelines can live in, as `/storages` lists them, and what is kept of their configuration."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rioni.domain.errors import Invalid
from rioni.domain.events import DomainEvent


# --- The `kafka_configuration` of a storage: which members are kept, without credentials ---
#
# Source: reference settings-and-storages#kafka-configuration.
#
# The log keeps for ever what a client submits, and publishes it to `nakadi.audit.log`. So members that are not known
# are left out, as the contract allows, and addresses lose their user part. Credentials belong into the file of the
# setting `kafka_options`.

_ADDRESS = re.compile(
    r"([A-Za-z][A-Za-z0-9+._-]*://)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[^\s?#@]*)?", re.ASCII
)
_USER = re.compile(r"^([A-Za-z][A-Za-z0-9+._-]*://)?.*@")
_NAME = re.compile(r"[^\s@]*")
_DIGITS = re.compile(r"[0-9]{1,5}")

Normalizer = Callable[[Any], Any]
"""Returns the stored form of a value; None if the value is invalid."""


def kept_configuration(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The stored form of a configuration: the known members with valid values."""
    return {name: value for name, value in _read(configuration, _MEMBERS).items() if value is not None}


def check_configuration(configuration: Mapping[str, Any]) -> None:
    """Check the known members of a configuration; null means absent.

    Raises:
        Invalid: some values are not valid; the message names these members, not the values.
    """
    kept = kept_configuration(configuration)
    if wrong := [name for name in _MEMBERS if configuration.get(name) is not None and name not in kept]:
        raise Invalid(
            f"kafka_configuration: {', '.join(wrong)} can't be read. Addresses are like host:port, separated by "
            "commas, ports and numbers of copies are whole numbers; credentials belong into the file of the setting "
            "kafka_options"
        )


def _addresses(value: Any) -> str | None:
    """Addresses, separated by commas, without the users in front of an `@`."""
    if not isinstance(value, str):
        return None
    items = [_USER.sub(lambda found: found[1] or "", item.strip()) for item in value.split(",")]
    return ",".join(items) if not value or all(map(_ADDRESS.fullmatch, items)) else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _port(value: Any) -> int | str | None:
    return value if isinstance(value, str) and _DIGITS.fullmatch(value) else _number(value)


def _zookeeper(value: Any) -> dict[str, Any] | None:
    """`{"type": …, "addresses": [{"address": …, "port": …}], "path": …}`."""
    if not isinstance(value, Mapping):
        return None
    kept = _read(value, _ZOOKEEPER)
    return None if None in kept.values() else kept


def _each_address(value: Any) -> list[dict[str, Any]] | None:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        return None
    items = [_read(item, _PLACE) for item in value]
    return None if any(None in item.values() for item in items) else items


def _read(value: Mapping[str, Any], members: Mapping[str, Normalizer]) -> dict[str, Any]:
    """The stored forms of the members that are there; None for those that are not valid."""
    return {name: read(value[name]) for name, read in members.items() if value.get(name) is not None}


_PLACE: Mapping[str, Normalizer] = {"address": _addresses, "port": _port}
_ZOOKEEPER: Mapping[str, Normalizer] = {"type": _name, "addresses": _each_address, "path": _name}
_MEMBERS: Mapping[str, Normalizer] = {
    "bootstrap_servers": _addresses,
    "topic_prefix": _name,
    "replication_factor": _number,
    "min_insync_replicas": _number,
    "exhibitor_address": _addresses,
    "exhibitor_port": _port,
    "zk_address": _addresses,
    "zk_path": _name,
    "zookeeper_connection": _zookeeper,
}
"""The first four are read by the broker; clients of the original API send the others, in one form or the other."""


# --- The storages that timelines can live in, as `/storages` lists them ---
#
# Source: reference settings-and-storages#storage-members.

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
    """The storage is of another type from now on; its events lie there in the same topics at the same positions."""

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
    """Check the submission of a client.

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
