"""Event types."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from rioni.client._async.transport import Transport, decode
from rioni.client.errors import Conflict, PreconditionFailed
from rioni.wire.base import has_members
from rioni.wire.event_types import Consumers, EventType, EventTypeFacets, ProducingClient
from rioni.wire.events import StreamTicket


_ITEM = "/event-types/{name}"


class _Producers(msgspec.Struct):
    items: list[ProducingClient]


class EventTypes:
    """Lists, creates, changes and deletes event types. Methods raise `ClientError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(
        self,
        *,
        name: str | None = None,
        owning_application: str | None = None,
        category: str | None = None,
        cleanup_policy: str | None = None,
        admin: str | None = None,
        reader: str | None = None,
        writer: str | None = None,
        labels: Sequence[str] = (),
        annotations: Sequence[str] = (),
        unused_days: int | None = None,
        as_of: str | int | None = None,
    ) -> Sequence[EventType]:
        """The event types that match all given filters, by name.

        Args:
            name: a name, in which `*` matches any text.
            owning_application: exactly this one.
            category: exactly this one.
            cleanup_policy: exactly this one.
            admin: an attribute like `user:jane` that must be listed.
            reader: an attribute that must be listed.
            writer: an attribute that must be listed.
            labels: keys, or `key:value`, that they must have.
            annotations: keys, or `key:value`, that they must have.
            unused_days: for how many days, at most 90, nobody has published to them or read them.
            as_of: a time (RFC 3339) or a position of the log: the state then.
        """
        params = _filters(
            name=name,
            owning_application=owning_application,
            category=category,
            cleanup_policy=cleanup_policy,
            admin=admin,
            reader=reader,
            writer=writer,
            labels=labels,
            annotations=annotations,
            unused_days=unused_days,
            as_of=as_of,
        )
        return await self._transport.fetch(list[EventType], "GET", "/event-types", params=params)

    async def facets(
        self,
        *,
        name: str | None = None,
        owning_application: str | None = None,
        category: str | None = None,
        cleanup_policy: str | None = None,
        admin: str | None = None,
        reader: str | None = None,
        writer: str | None = None,
        labels: Sequence[str] = (),
        annotations: Sequence[str] = (),
        unused_days: int | None = None,
        as_of: str | int | None = None,
        limit: int | None = None,
    ) -> EventTypeFacets:
        """The number of event types that match all given filters, in all and by their values.

        Args:
            name: as for `list`.
            owning_application: as for `list`.
            category: as for `list`.
            cleanup_policy: as for `list`.
            admin: as for `list`.
            reader: as for `list`.
            writer: as for `list`.
            labels: as for `list`.
            annotations: as for `list`.
            unused_days: as for `list`; also the period of `unused` in the answer, by default 30.
            as_of: as for `list`; the answer has no `unused` then.
            limit: how many values of each member are listed, by default 100.
        """
        params = _filters(
            name=name,
            owning_application=owning_application,
            category=category,
            cleanup_policy=cleanup_policy,
            admin=admin,
            reader=reader,
            writer=writer,
            labels=labels,
            annotations=annotations,
            unused_days=unused_days,
            as_of=as_of,
        )
        params["limit"] = limit
        return await self._transport.fetch(EventTypeFacets, "GET", "/event-type-facets", params=params)

    async def get(self, name: str, *, as_of: str | int | None = None) -> EventType:
        """An event type; raises NotFound."""
        response = await self._transport.request("GET", _ITEM, path={"name": name}, params={"as_of": as_of})
        found = decode(response, EventType)
        found.etag = response.headers.get("ETag")
        return found

    async def create(self, event_type: EventType) -> EventType:
        """Create an event type; raises Conflict if there is one of this name."""
        members = event_type.members()
        try:
            response = await self._transport.request("POST", "/event-types", body=members, repeatable=True)
        except Conflict as ex:
            if ex.may_be_done and has_members(found := await self.get(event_type.name), members):
                return found
            raise
        # The broker may be one that answers without a body.
        created = decode(response, EventType) if response.content else await self.get(event_type.name)
        created.etag = created.etag or response.headers.get("ETag")
        return created

    async def update(self, event_type: EventType, *, if_match: str | None = None) -> EventType:
        """Change an event type, and return it as it is then.

        Args:
            event_type: with all of its members.
            if_match: the ETag of the state that the change was made of; by default that of `event_type`, if it was read
                from the broker. `*` changes any state.

        Raises:
            PreconditionFailed: the event type was changed since.
            Unprocessable: the change is not allowed, for instance by the compatibility mode.
        """
        etag = if_match or event_type.etag
        members = event_type.members()
        try:
            await self._transport.request(
                "PUT",
                _ITEM,
                path={"name": event_type.name},
                body=members,
                headers={"If-Match": etag} if etag and etag != "*" else None,
            )
        except PreconditionFailed as ex:
            if ex.may_be_done and has_members(found := await self.get(event_type.name), members):
                return found
            raise
        return await self.get(event_type.name)

    async def delete(self, name: str) -> None:
        """Delete an event type, its schemas and its events; raises Conflict if there are subscriptions to it."""
        await self._transport.delete(_ITEM, {"name": name})

    async def stream_ticket(self, name: str) -> StreamTicket:
        """A ticket with which a browser opens a low-level stream of an event type, once; of Rioni only."""
        return await new_ticket(self._transport, f"/event-types/{quote(name, safe='')}/events")

    async def producers(self, name: str) -> Sequence[ProducingClient]:
        """The clients that published to an event type, by name."""
        template = f"{_ITEM}/producers"
        return (await self._transport.fetch(_Producers, "GET", template, path={"name": name})).items

    async def consumers(self, name: str, *, show_time_lag: bool = False) -> Consumers:
        """The subscriptions to an event type, and the clients that read it without one.

        Args:
            name: of the event type.
            show_time_lag: ask for the lag in seconds, too.
        """
        params = {"show_time_lag": "true" if show_time_lag else None}
        return await self._transport.fetch(Consumers, "GET", f"{_ITEM}/consumers", path={"name": name}, params=params)

    async def enrichment_strategies(self) -> Sequence[str]:
        """Names of the enrichment strategies."""
        return await self._transport.fetch(list[str], "GET", "/registry/enrichment-strategies")

    async def partition_strategies(self) -> Sequence[str]:
        """Names of the partition strategies."""
        return await self._transport.fetch(list[str], "GET", "/registry/partition-strategies")


def list_or_none(values: Sequence[str]) -> Sequence[str] | None:
    """Values of a query parameter that may be repeated; None leaves it out."""
    return [*values] or None


def _filters(*, labels: Sequence[str], annotations: Sequence[str], **others: str | int | None) -> dict[str, Any]:
    return {"label": list_or_none(labels), "annotation": list_or_none(annotations), **others}


async def new_ticket(transport: Transport, path: str) -> StreamTicket:
    """Ask for a ticket for the stream at a path."""
    # Repeatable, as a ticket stores nothing: one that nobody uses expires.
    return await transport.fetch(StreamTicket, "POST", "/stream-tickets", body={"path": path}, repeatable=True)
