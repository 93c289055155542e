"""Settings, storages, jobs, rebuilds and the state of the broker."""

from collections.abc import Sequence
from typing import Any

from rioni.client._async.resource import Resource
from rioni.client.answers import decode
from rioni.client.errors import Conflict, UnexpectedAnswer
from rioni.client.keywords import list_or_none
from rioni.wire.access import Admins
from rioni.wire.administration import (
    Blacklist,
    Feature,
    Health,
    Job,
    JobReport,
    Metrics,
    MetricsHistory,
    Node,
    Rebuild,
    Rights,
    Storage,
)
from rioni.wire.base import has_members


_SERVICE_UNAVAILABLE = 503


class Settings(Resource):
    """Shows and changes settings of the broker. Methods raise `ClientError`."""

    async def admins(self, *, as_of: str | int | None = None) -> Admins:
        """The administrators, readers and writers of the broker."""
        return await self._transport.fetch(Admins, "GET", "/settings/admins", params={"as_of": as_of})

    async def set_admins(self, admins: Admins) -> Admins:
        """Set the administrators of the broker; the administrator of its configuration remains one."""
        return await self._transport.fetch(Admins, "POST", "/settings/admins", body=admins.members(), repeatable=True)

    async def blacklist(self, *, as_of: str | int | None = None) -> Blacklist:
        """Applications and event types that are blocked."""
        return await self._transport.fetch(Blacklist, "GET", "/settings/blacklist", params={"as_of": as_of})

    async def block(self, kind: str, name: str) -> None:
        """Block an application or event type.

        Args:
            kind: `CONSUMER_APP`, `CONSUMER_ET`, `PRODUCER_APP` or `PRODUCER_ET`.
            name: of the application or event type.
        """
        await self._transport.request("PUT", "/settings/blacklist/{kind}/{name}", path={"kind": kind, "name": name})

    async def unblock(self, kind: str, name: str) -> None:
        """Unblock an application or event type; arguments as for `block`."""
        await self._transport.request("DELETE", "/settings/blacklist/{kind}/{name}", path={"kind": kind, "name": name})

    async def rights(self, *, event_type: str | None = None, subscription_id: str | None = None) -> Rights:
        """The rights of this client on the broker, and on an event type or a subscription; of Rioni only."""
        params = {"event_type": event_type, "subscription_id": subscription_id}
        return await self._transport.fetch(Rights, "GET", "/rights", params=params)

    async def features(self, *, as_of: str | int | None = None) -> Sequence[Feature]:
        """All switches."""
        return await self._items(Feature, "/settings/features", params={"as_of": as_of})

    async def switch_feature(self, feature: str, *, enabled: bool) -> None:
        """Switch a feature on or off."""
        body = {"feature": feature, "enabled": enabled}
        await self._transport.request("POST", "/settings/features", body=body, repeatable=True)


class Storages(Resource):
    """Shows, adds and removes storages. Methods raise `ClientError`."""

    async def list(self, *, as_of: str | int | None = None) -> Sequence[Storage]:
        """All storages by id."""
        return await self._transport.fetch(list[Storage], "GET", "/storages", params={"as_of": as_of})

    async def get(self, storage_id: str, *, as_of: str | int | None = None) -> Storage:
        """A storage; raises NotFound."""
        path = {"storage_id": storage_id}
        return await self._transport.fetch(Storage, "GET", "/storages/{storage_id}", path=path, params={"as_of": as_of})

    async def create(self, storage: Storage) -> Storage:
        """Add a storage; raises Conflict if there is one of this id."""
        members = storage.members()
        try:
            return await self._transport.fetch(Storage, "POST", "/storages", body=members, repeatable=True)
        except Conflict as ex:
            if ex.may_be_done and has_members(found := await self.get(storage.id), members):
                return found
            raise

    async def delete(self, storage_id: str) -> None:
        """Remove a storage; raises BadRequest while it is used."""
        path = {"storage_id": storage_id}
        await self._transport.delete("/storages/{storage_id}", path)

    async def set_default(self, storage_id: str) -> Storage:
        """Let new event types begin in this storage."""
        path = {"storage_id": storage_id}
        return await self._transport.fetch(Storage, "PUT", "/storages/default/{storage_id}", path=path)


class Jobs(Resource):
    """Shows archives and backups. Methods raise `ClientError`."""

    async def list(self, kind: str | None = None) -> Sequence[Job]:
        """The last 100 jobs of a kind, `archive` or `backup`, or of each; the most recent reports first."""
        return await self._items(Job, "/jobs", params={"kind": kind})

    async def report(self, job_id: str, report: JobReport) -> Job:
        """Report the progress of a job of this client; report it at least every 20 seconds.

        Args:
            job_id: a UUID, which the client chooses when the job begins.
            report: its present state.
        """
        path = {"job_id": job_id}
        return await self._transport.fetch(Job, "PUT", "/jobs/{job_id}", path=path, body=report.members())


class Rebuilds(Resource):
    """Shows rebuilds of the read models. Methods raise `ClientError`."""

    async def list(self) -> Sequence[Rebuild]:
        """The last 100, newest first."""
        return await self._items(Rebuild, "/rebuilds")

    async def get(self, rebuild_id: str) -> Rebuild:
        """A rebuild; raises NotFound."""
        return await self._transport.fetch(Rebuild, "GET", "/rebuilds/{rebuild_id}", path={"rebuild_id": rebuild_id})


class Monitoring(Resource):
    """Shows the state of the broker. Methods raise `ClientError`."""

    async def health(self) -> bool:
        """Whether the broker answers."""
        response = await self._transport.request("GET", "/health", headers={"Accept": "text/plain"})
        return response.is_success

    async def live(self) -> Health:
        """The background jobs of the process; also those that hang."""
        return await self._health("/livez")

    async def ready(self) -> Health:
        """The health of the broker and of what it depends on; also if it is not ready."""
        return await self._health("/readyz")

    async def nodes(self) -> list[Node]:
        """The nodes of the broker with their worker processes; for its administrators."""
        return await self._items(Node, "/nodes")

    async def metrics(self) -> Metrics:
        """The metrics of the node."""
        return await self._transport.fetch(Metrics, "GET", "/metrics")

    async def metrics_text(self) -> str:
        """The metrics of the node in Prometheus' text format."""
        return (await self._transport.request("GET", "/metrics", headers={"Accept": "text/plain"})).text

    async def history(
        self,
        *,
        names: Sequence[str] = (),
        event_types: Sequence[str] = (),
        subscriptions: Sequence[str] = (),
        total: bool | None = None,
        since: str | None = None,
        step: int | None = None,
        order: str | None = None,
        limit: int | None = None,
    ) -> MetricsHistory:
        """The metrics of the node in the last hour.

        Args:
            names: of series; by default all.
            event_types: only series of these.
            subscriptions: only series of these.
            total: only what the series by event type, API and subscription amount to, or only these; by default both.
            since: a time (RFC 3339); by default an hour ago.
            step: seconds of a value; by default 10.
            order: `name`, or `largest` for those with the largest last value first.
            limit: how many series are returned; by default 100.
        """
        params = {
            "name": list_or_none(names),
            "event_type": list_or_none(event_types),
            "subscription": list_or_none(subscriptions),
            "total": None if total is None else str(total).lower(),
            "since": since,
            "step": step,
            "order": order,
            "limit": limit,
        }
        return await self._transport.fetch(MetricsHistory, "GET", "/metrics/history", params=params)

    async def version(self) -> str:
        """The version of the broker."""
        found = await self._transport.fetch(dict[str, Any], "GET", "/version")
        return str(found.get("version", ""))

    async def openapi(self) -> dict[str, Any]:
        """The description of the API as an OpenAPI document."""
        return await self._transport.fetch(dict[str, Any], "GET", "/openapi.json")

    async def docs(self) -> str:
        """The description of the API as a page."""
        return (await self._transport.request("GET", "/docs", headers={"Accept": "text/html"})).text

    async def _health(self, template: str) -> Health:
        # A broker that is not ready answers 503 with the same members, which is no reason to ask again.
        response = await self._transport.request("GET", template, accept=(_SERVICE_UNAVAILABLE,))
        try:
            return decode(response, Health)
        except UnexpectedAnswer as ex:
            if response.is_success:
                raise
            # The answer comes from a proxy, or from a broker that can't even report what is wrong.
            raise self._transport.problem(response) from ex
