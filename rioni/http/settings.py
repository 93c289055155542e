"""`/settings` and `/storages`: administrators, blacklist, features, storages (registry contract 9)."""

from http import HTTPStatus
from typing import Any

import falcon
import msgspec
import orjson

from rioni.commands.settings import AddBlacklistEntry, RemoveBlacklistEntry, SetAdmins, SwitchFeature
from rioni.domain.authorization import permits
from rioni.domain.errors import AdminOnly
from rioni.domain.settings import FEATURES, Admins, Settings
from rioni.domain.storage_entry import StorageEntry
from rioni.http import bodies
from rioni.http.requests import dispatch, read_body, subject_of
from rioni.http.services import Services
from rioni.projections import storages


class AdminsResource:
    """`/settings/admins`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the administrators, the configured default administrator included."""
        admins = _settings(req, self._services).admins
        resp.data = _admins_body(admins, self._services)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Name the administrators."""
        submitted = bodies.admins(read_body(req, self._services.config.body_bytes_max))
        admins = dispatch(SetAdmins(admins=submitted), req, self._services)
        resp.data = _admins_body(admins, self._services)


class BlacklistResource:
    """`/settings/blacklist`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List what is blocked."""
        blacklist = _settings(req, self._services).blacklist
        body = {
            f"{side.lower()}s": {
                "event_types": [name for kind, name in blacklist if kind == f"{side}_ET"],
                "apps": [name for kind, name in blacklist if kind == f"{side}_APP"],
            }
            for side in ("PRODUCER", "CONSUMER")
        }
        resp.data = orjson.dumps(body)


class BlacklistEntryResource:
    """`/settings/blacklist/{type}/{name}`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_put(self, req: falcon.Request, resp: falcon.Response, blacklist_type: str, name: str) -> None:
        """Block an application or an event type."""
        dispatch(AddBlacklistEntry(type=blacklist_type, name=name), req, self._services)
        resp.status = HTTPStatus.NO_CONTENT.value

    def on_delete(self, req: falcon.Request, resp: falcon.Response, blacklist_type: str, name: str) -> None:
        """Block it no longer."""
        dispatch(RemoveBlacklistEntry(type=blacklist_type, name=name), req, self._services)
        resp.status = HTTPStatus.NO_CONTENT.value


class FeaturesResource:
    """`/settings/features`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all features."""
        on = _settings(req, self._services).features
        resp.data = orjson.dumps({"items": [{"feature": name, "enabled": name in on} for name in FEATURES]})

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Switch a feature."""
        feature, enabled = bodies.feature(read_body(req, self._services.config.body_bytes_max))
        dispatch(SwitchFeature(feature=feature, enabled=enabled), req, self._services)
        resp.status = HTTPStatus.NO_CONTENT.value


class StoragesResource:
    """`/storages`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the storages."""
        _settings(req, self._services, "Admin privileges required to perform this operation")
        resp.data = orjson.dumps([_storage(each) for each in self._services.query(storages.all_storages)])


class StorageResource:
    """`/storages/{id}`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response, storage_id: str) -> None:
        """Show a storage."""
        _settings(req, self._services, "Admin privileges required to perform this operation")
        resp.data = orjson.dumps(_storage(self._services.query(storages.get, storage_id)))


def _settings(
    req: falcon.Request, services: Services, refusal: str = "Admin privileges are required to perform this operation"
) -> Settings:
    """The settings, for the broker's administrators only."""
    services.registry.refresh()
    settings = services.registry.settings
    if not permits((*settings.admins.readers, services.default_admin), subject_of(req)):
        raise AdminOnly(refusal)
    return settings


def _admins_body(admins: Admins, services: Services) -> bytes:
    shown = {name: (*getattr(admins, name), services.default_admin) for name in ("admins", "readers", "writers")}
    return msgspec.json.encode(Admins(**shown))


def _storage(storage: StorageEntry) -> dict[str, Any]:
    item: dict[str, Any] = {"id": storage.id, "storage_type": storage.storage_type, "default": storage.default}
    if storage.configuration:
        item[f"{storage.storage_type}_configuration"] = storage.configuration
    return item
