"""`/settings`: administrators, blacklist, features (reference settings-and-storages#administrators)."""

import contextlib
from http import HTTPStatus

import falcon
import msgspec
import orjson

from rioni.commands.system.settings import AddBlacklistEntry, RemoveBlacklistEntry, SetAdmins, SwitchFeature
from rioni.domain.errors import AdminOnly, ReadOnly
from rioni.domain.system.settings import FEATURES, Admins, Settings
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.http.history import AS_OF, as_of
from rioni.http.request_parsing import dispatch, parsed
from rioni.http.resources.resource import Resource
from rioni.projections.queries.settings import settings_at


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
        """List what is blocked."""
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
