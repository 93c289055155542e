"""`/settings`, `/storages`, `/nodes`, `/rights`, `/jobs` and `/rebuilds`: what administrators set and see."""

import contextlib
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from uuid import UUID

import falcon
import msgspec
import orjson

from rioni.commands.system.storages import (
    AddBlacklistEntry,
    CreateStorage,
    DeleteStorage,
    RemoveBlacklistEntry,
    SetAdmins,
    SetDefaultStorage,
    SwitchFeature,
)
from rioni.config.settings import Config
from rioni.domain.errors import AdminOnly, Invalid, Malformed, ReadOnly
from rioni.domain.system.reports import KINDS, WorkerReport, current
from rioni.domain.system.settings import FEATURES, Admins, Settings
from rioni.domain.system.storages import EMBEDDED, KAFKA, StorageEntry, kept_configuration
from rioni.domain.timestamps import rfc3339
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import caller_of, subject_of
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.operations import allowed_operations
from rioni.http.request_parsing import AS_OF, as_of, check_history, dispatch, parsed
from rioni.projections.generations import rebuilds
from rioni.projections.generations.generation import WORKING
from rioni.projections.generations.rebuilds import Rebuild
from rioni.projections.queries import storages
from rioni.projections.queries.past import settings_at


# --- `/settings`: administrators, blacklist, features (reference settings-and-storages#administrators) ---


class AdminsResource(Resource):
    """`/settings/admins`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the administrators, the configured default administrator included."""
        admins = _shown_settings(req, resp, self._dependencies).admins
        resp.data = _admins_body(admins, self._dependencies)

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Replace the list of administrators."""
        submitted = parsed(parsing.admins, read_json(req), self._dependencies)
        admins = dispatch(SetAdmins(admins=submitted), req, self._dependencies)
        resp.data = _admins_body(admins, self._dependencies)


class BlacklistResource(Resource):
    """`/settings/blacklist`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List blocked applications and event types."""
        blacklist = _shown_settings(req, resp, self._dependencies).blacklist
        body = {
            f"{side.lower()}s": {
                "event_types": [name for kind, name in blacklist if kind == f"{side}_ET"],
                "apps": [name for kind, name in blacklist if kind == f"{side}_APP"],
            }
            for side in ("PRODUCER", "CONSUMER")
        }
        resp.data = orjson.dumps(body)


class BlacklistEntryResource(Resource):
    """`/settings/blacklist/{type}/{name}`."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, blacklist_type: str, name: str) -> None:
        """Block an application or an event type."""
        dispatch(AddBlacklistEntry(type=blacklist_type, name=name), req, self._dependencies)
        resp.status = HTTPStatus.NO_CONTENT.value

    def on_delete(self, req: falcon.Request, resp: falcon.Response, blacklist_type: str, name: str) -> None:
        """Unblock an application or an event type."""
        dispatch(RemoveBlacklistEntry(type=blacklist_type, name=name), req, self._dependencies)
        resp.status = HTTPStatus.NO_CONTENT.value


class FeaturesResource(Resource):
    """`/settings/features`."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all features."""
        on = _shown_settings(req, resp, self._dependencies).features
        resp.data = orjson.dumps({"items": [{"feature": name, "enabled": name in on} for name in FEATURES]})

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Switch a feature."""
        feature, enabled = parsed(parsing.feature, read_json(req), self._dependencies)
        dispatch(SwitchFeature(feature=feature, enabled=enabled), req, self._dependencies)
        # At once, so that clients can subscribe; if that fails, a background job retries.
        with contextlib.suppress(ReadOnly):
            self._dependencies.system_event_types.ensure()
        resp.status = HTTPStatus.NO_CONTENT.value


def settings_for(
    req: falcon.Request,
    dependencies: Dependencies,
    refusal: str = "Admin privileges are required to perform this operation",
) -> Settings:
    """The settings, up to date, for the broker's administrators only; as they were also for those who read the history.

    Raises:
        AdminOnly: the subject is not an administrator; `refusal` is the error's detail.
    """
    dependencies.registry.refresh()
    right = "READ" if req.get_param(AS_OF) is None else "HISTORY"
    if not dependencies.access.may(subject_of(req), right):
        raise AdminOnly(refusal)
    return dependencies.registry.settings


def _shown_settings(req: falcon.Request, resp: falcon.Response, dependencies: Dependencies) -> Settings:
    """The settings now, or at the moment that the request asks about."""
    settings = settings_for(req, dependencies)
    at = as_of(req, resp, dependencies)
    return settings if at is None else dependencies.query(settings_at, at)


def _admins_body(admins: Admins, dependencies: Dependencies) -> bytes:
    shown = {name: (*getattr(admins, name), dependencies.default_admin) for name in ("admins", "readers", "writers")}
    return msgspec.json.encode(Admins(**shown))


# --- `/storages`: where events can be stored (reference settings-and-storages#storage-members) ---

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


# --- `/nodes`: the nodes of the broker and their worker processes (reference operations#nodes) ---


class NodesResource(Resource):
    """All nodes."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Show the last reports of the workers of each node."""
        settings_for(req, self._dependencies)
        nodes = current(self._dependencies.coordinator.announced(), self._dependencies.clock.now_ms())
        resp.set_header("Cache-Control", "no-store")
        resp.data = orjson.dumps({"items": [_node(each) for each in nodes]})


def _node(workers: Sequence[WorkerReport]) -> dict[str, Any]:
    first = workers[0]
    return {
        "id": first.node,
        "host": first.host,
        "port": first.port,
        "version": first.version,
        "configured_workers": first.workers,
        "workers": [_worker(each) for each in workers],
    }


def _worker(report: WorkerReport) -> dict[str, Any]:
    return {
        "number": report.number,
        "pid": report.pid,
        "started_at": rfc3339(report.started_ms),
        "reported_at": rfc3339(report.reported_ms),
        "log_position": report.log_position,
        "connections": report.connections,
        "streams": report.streams,
        "requests_per_second": report.requests_per_s,
    }


# --- `/rights`: what the caller may do (reference authorization#own-rights) ---


class RightsResource(Resource):
    """The rights of the caller to the broker, and to an event type or a subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        self._dependencies.registry.refresh()
        found = allowed_operations(
            self._dependencies.access, caller_of(req), req.get_param("event_type"), req.get_param("subscription_id")
        )
        resp.data = msgspec.json.encode(found)


# --- `/jobs` and `/rebuilds`: archives, backups and rebuilds, and how far they are (reference jobs, rebuilds) ---


class JobsResource(Resource):
    """The jobs that are remembered."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List all jobs, or those of a kind, the last ones to report first."""
        check_history(req, self._dependencies)
        kind = req.get_param("kind")
        if kind is not None and kind not in KINDS:
            raise Malformed(f"kind: '{kind}' is none of {', '.join(KINDS)}")
        resp.data = msgspec.json.encode({"items": self._dependencies.jobs.newest(kind)})


class JobResource(Resource):
    """One job."""

    def on_put(self, req: falcon.Request, resp: falcon.Response, job_id: str) -> None:
        """Record the report of a job of the client."""
        try:
            UUID(job_id)
        except ValueError:
            raise Malformed(f"'{job_id}' is not a UUID") from None
        report = parsed(parsing.job_report, read_json(req), self._dependencies)
        resp.data = msgspec.json.encode(self._dependencies.jobs.report(job_id, report, subject_of(req)))


# --- `/rebuilds`: the progress of rebuilds of the read models (reference rebuilds) ---


class RebuildsResource(Resource):
    """The rebuilds that are remembered."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """All of them, newest first."""
        check_history(req, self._dependencies)
        resp.data = orjson.dumps({"items": [_shown(each) for each in self._dependencies.query(rebuilds.newest)]})


class RebuildResource(Resource):
    """One rebuild."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, rebuild_id: str) -> None:
        """How far it is, or how it ended."""
        check_history(req, self._dependencies)
        resp.data = orjson.dumps(_shown(self._dependencies.query(rebuilds.find, rebuild_id)))


def _shown(rebuild: Rebuild) -> dict[str, Any]:
    plan = rebuild.plan
    return {
        "id": rebuild.id,
        "state": rebuild.state,
        "started_at": rebuild.started_at,
        "updated_at": rebuild.updated_at,
        "phase": rebuild.phase,
        "done": rebuild.done,
        "total": rebuild.total,
        "detail": rebuild.detail,
        "into": None if plan.generation == WORKING else plan.generation,
        "tables": plan.tables,
        "position": plan.position,
        "fold": plan.fold,
    }
