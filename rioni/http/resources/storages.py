"""`/storages`: where events can be stored (reference settings-and-storages#storage-members)."""

from http import HTTPStatus
from typing import Any

import falcon
import orjson

from rioni.commands.system.storages import CreateStorage, DeleteStorage, SetDefaultStorage
from rioni.config.settings import Config
from rioni.domain.errors import Invalid
from rioni.domain.system.storage_configuration import kept_configuration
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.history import as_of
from rioni.http.request_parsing import dispatch, parsed
from rioni.http.resources.resource import Resource
from rioni.http.resources.settings import settings_for
from rioni.projections.queries import storages


REFUSAL = "Admin privileges required to perform this operation"


class StoragesResource(Resource):
    """All storages."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the storages by id."""
        settings_for(req, self._dependencies, REFUSAL)
        found = self._dependencies.query(storages.all_storages, as_of(req, resp, self._dependencies))
        resp.data = orjson.dumps([_item(each, self._dependencies.config) for each in found])

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Add a storage."""
        submitted = parsed(parsing.storage, read_json(req), self._dependencies)
        if submitted.storage_type == EMBEDDED and self._dependencies.config.clustered:
            raise Invalid(
                "This broker has several nodes, and a storage of type embedded is in the data directory of one node. "
                "Create one of type kafka."
            )
        resp.data = _body(
            dispatch(CreateStorage(storage=submitted), req, self._dependencies), self._dependencies.config
        )
        resp.status = HTTPStatus.CREATED.value


class StorageResource(Resource):
    """One storage."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, storage_id: str) -> None:
        """Show a storage."""
        settings_for(req, self._dependencies, REFUSAL)
        at = as_of(req, resp, self._dependencies)
        resp.data = _body(self._dependencies.query(storages.get, storage_id, at), self._dependencies.config)

    def on_delete(self, req: falcon.Request, resp: falcon.Response, storage_id: str) -> None:
        """Delete an unused storage."""
        dispatch(DeleteStorage(storage_id=storage_id), req, self._dependencies)
        resp.status = HTTPStatus.NO_CONTENT.value


class DefaultStorageResource(Resource):
    """The storage in which new event types begin."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, storage_id: str) -> None:
        """Make a storage the default for new event types."""
        resp.data = _body(
            dispatch(SetDefaultStorage(storage_id=storage_id), req, self._dependencies), self._dependencies.config
        )


def _body(storage: StorageEntry, config: Config) -> bytes:
    return orjson.dumps(_item(storage, config))


def _item(storage: StorageEntry, config: Config) -> dict[str, Any]:
    """A storage; one of type kafka that was given no configuration shows the brokers that the settings name."""
    item: dict[str, Any] = {"id": storage.id, "storage_type": storage.storage_type, "default": storage.default}
    configuration = storage.configuration
    if storage.storage_type == KAFKA and not configuration and config.kafka is not None:
        configuration = {"bootstrap_servers": config.kafka}
    if kept := kept_configuration(configuration):
        item[f"{storage.storage_type}_configuration"] = kept
    return item
