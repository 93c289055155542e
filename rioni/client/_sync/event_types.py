"""Event types, their schemas, partitions and timelines, and cursor arithmetic."""

from collections.abc import Iterator, Sequence
from typing import Unpack
from urllib.parse import quote

import msgspec

from rioni.client._sync.resource import Resource, flag
from rioni.client._sync.transport import Transport
from rioni.client.answers import decode
from rioni.client.errors import Conflict, PreconditionFailed
from rioni.client.keywords import EventTypeFilters, filter_parameters
from rioni.wire.base import has_members
from rioni.wire.event_types import (
    AvroSchema,
    Compatibility,
    Consumers,
    EventType,
    EventTypeFacets,
    Partition,
    ProducingClient,
    Schema,
    Timeline,
)
from rioni.wire.events import Cursor, CursorSpecification, Distance, StreamTicket


# --- Event types ---

_ITEM = "/event-types/{name}"


class EventTypes(Resource):
    """Lists, creates, changes and deletes event types. Methods raise `ClientError`."""

    def list(self, **filters: Unpack[EventTypeFilters]) -> Sequence[EventType]:
        """The event types that match all given filters, by name."""
        params = filter_parameters(**filters)
        return self._transport.fetch(list[EventType], "GET", "/event-types", params=params)

    def facets(self, *, limit: int | None = None, **filters: Unpack[EventTypeFilters]) -> EventTypeFacets:
        """The number of event types that match all given filters, in all and by their values.

        Args:
            limit: how many values of each member are listed, by default 100.
            filters: as for `list`. `unused_days` is also the period of `unused` in the answer, by default 30; with
                `as_of` the answer has no `unused`.
        """
        params = {**filter_parameters(**filters), "limit": limit}
        return self._transport.fetch(EventTypeFacets, "GET", "/event-type-facets", params=params)

    def get(self, name: str, *, as_of: str | int | None = None) -> EventType:
        """An event type; raises NotFound."""
        response = self._transport.request("GET", _ITEM, path={"name": name}, params={"as_of": as_of})
        found = decode(response, EventType)
        found.etag = response.headers.get("ETag")
        return found

    def create(self, event_type: EventType) -> EventType:
        """Create an event type; raises Conflict if there is one of this name."""
        members = event_type.members()
        try:
            response = self._transport.request("POST", "/event-types", body=members, repeatable=True)
        except Conflict as ex:
            if ex.may_be_done and has_members(found := self.get(event_type.name), members):
                return found
            raise
        # The broker may be one that answers without a body.
        created = decode(response, EventType) if response.content else self.get(event_type.name)
        created.etag = created.etag or response.headers.get("ETag")
        return created

    def update(self, event_type: EventType, *, if_match: str | None = None) -> EventType:
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
            self._transport.request(
                "PUT",
                _ITEM,
                path={"name": event_type.name},
                body=members,
                headers={"If-Match": etag} if etag and etag != "*" else None,
            )
        except PreconditionFailed as ex:
            if ex.may_be_done and has_members(found := self.get(event_type.name), members):
                return found
            raise
        return self.get(event_type.name)

    def delete(self, name: str) -> None:
        """Delete an event type, its schemas and its events; raises Conflict if there are subscriptions to it."""
        self._transport.delete(_ITEM, {"name": name})

    def stream_ticket(self, name: str) -> StreamTicket:
        """A ticket with which a browser opens a low-level stream of an event type, once; of Rioni only."""
        return new_ticket(self._transport, f"/event-types/{quote(name, safe='')}/events")

    def producers(self, name: str) -> Sequence[ProducingClient]:
        """The clients that published to an event type, by name."""
        template = f"{_ITEM}/producers"
        return self._items(ProducingClient, template, path={"name": name})

    def consumers(self, name: str, *, show_time_lag: bool = False) -> Consumers:
        """The subscriptions to an event type, and the clients that read it without one.

        Args:
            name: of the event type.
            show_time_lag: ask for the lag in seconds, too.
        """
        params = {"show_time_lag": flag(show_time_lag)}
        return self._transport.fetch(Consumers, "GET", f"{_ITEM}/consumers", path={"name": name}, params=params)

    def enrichment_strategies(self) -> Sequence[str]:
        """Names of the enrichment strategies."""
        return self._transport.fetch(list[str], "GET", "/registry/enrichment-strategies")

    def partition_strategies(self) -> Sequence[str]:
        """Names of the partition strategies."""
        return self._transport.fetch(list[str], "GET", "/registry/partition-strategies")


def new_ticket(transport: Transport, path: str) -> StreamTicket:
    """Ask for a ticket for the stream at a path."""
    # Repeatable, as a ticket stores nothing: one that nobody uses expires.
    return transport.fetch(StreamTicket, "POST", "/stream-tickets", body={"path": path}, repeatable=True)


# --- Versions of schemas ---

_SCHEMAS = "/event-types/{name}/schemas"
_VERSION = "/event-types/{name}/schemas/{version}"


class Schemas(Resource):
    """Lists, adds and checks versions of schemas. Methods raise `ClientError`."""

    def list(self, name: str, *, as_of: str | int | None = None) -> Iterator[Schema]:
        """All versions of the schema of an event type, newest first; asks for a page when it is needed."""
        return self._numbered(Schema, _SCHEMAS, {"as_of": as_of}, {"name": name})

    def get(self, name: str, version: str = "latest", *, as_of: str | int | None = None) -> Schema:
        """A version of the schema of an event type; raises NotFound."""
        path = {"name": name, "version": version}
        return self._transport.fetch(Schema, "GET", _VERSION, path=path, params={"as_of": as_of})

    def add(self, name: str, schema: Schema) -> Schema | None:
        """Add a version; None if the broker does not answer with it.

        Raises:
            Unprocessable: the schema is invalid, or the compatibility mode does not allow the change.
        """
        response = self._transport.request("POST", _SCHEMAS, path={"name": name}, body=schema.members())
        return decode(response, Schema) if response.content else None

    def find(self, name: str, schema: Schema) -> Schema:
        """The version that has this schema; raises NotFound."""
        return self._transport.fetch(
            Schema,
            "POST",
            _SCHEMAS,
            path={"name": name},
            params={"fetch": "true"},
            body=schema.members(),
            repeatable=True,
        )

    def check(self, name: str, schema: Schema, version: str = "latest") -> Compatibility:
        """Whether a schema may follow a version, under the event type's compatibility mode; changes nothing."""
        return self._transport.fetch(
            Compatibility,
            "POST",
            f"{_VERSION}/compatibility-check",
            path={"name": name, "version": version},
            body=schema.members(),
            repeatable=True,
        )

    def avro_versions(self, name: str) -> Sequence[AvroSchema]:
        """All versions of the Avro schema of a batch: `batch.publishing` or `batch.consumption`."""
        return self._items(AvroSchema, "/avro-schemas/{name}/versions", path={"name": name})

    def avro(self, name: str, version: str) -> AvroSchema:
        """A version of the Avro schema of a batch."""
        path = {"name": name, "version": version}
        return self._transport.fetch(AvroSchema, "GET", "/avro-schemas/{name}/versions/{version}", path=path)


# --- Partitions and timelines of event types, and cursor arithmetic ---

_PARTITIONS = "/event-types/{name}/partitions"
_TIMELINES = "/event-types/{name}/timelines"


class Partitions(Resource):
    """Shows and adds partitions, and computes with cursors. Methods raise `ClientError`."""

    def list(self, name: str, *, cursors: Sequence[Cursor] = ()) -> Sequence[Partition]:
        """All partitions in the order of their numbers.

        Args:
            name: of the event type.
            cursors: places after which unconsumed events are counted; their partitions come last, in this order.
        """
        wanted = [{"partition": cursor.partition, "offset": cursor.offset} for cursor in cursors]
        params = {"cursors": msgspec.json.encode(wanted).decode() if wanted else None}
        return self._transport.fetch(list[Partition], "GET", _PARTITIONS, path={"name": name}, params=params)

    def get(self, name: str, partition: str, *, consumed_offset: str | None = None) -> Partition:
        """A partition, with the number of events after `consumed_offset` if that is given; raises NotFound."""
        path = {"name": name, "partition": partition}
        params = {"consumed_offset": consumed_offset}
        return self._transport.fetch(Partition, "GET", f"{_PARTITIONS}/{{partition}}", path=path, params=params)

    def set_count(self, name: str, count: int) -> None:
        """Add partitions until there are `count`; events of a key may go to another partition from then on."""
        template = f"{_ITEM}/partition-count"
        self._transport.request("PUT", template, path={"name": name}, body={"partition_count": count})

    def distances(
        self, name: str, pairs: Sequence[tuple[CursorSpecification, CursorSpecification]]
    ) -> Sequence[Distance]:
        """The number of positions from the first cursor of each pair to the second."""
        items = [{"initial_cursor": first.members(), "final_cursor": last.members()} for first, last in pairs]
        return self._transport.fetch(
            list[Distance], "POST", f"{_ITEM}/cursor-distances", path={"name": name}, body=items, repeatable=True
        )

    def shift(self, name: str, cursors: Sequence[CursorSpecification]) -> Sequence[Cursor]:
        """The cursors that are `shift` positions after each of these, or before it."""
        items = [cursor.members() for cursor in cursors]
        return self._transport.fetch(
            list[Cursor], "POST", f"{_ITEM}/shifted-cursors", path={"name": name}, body=items, repeatable=True
        )

    def lag(self, name: str, cursors: Sequence[CursorSpecification]) -> Sequence[Partition]:
        """The partition of each cursor, with the number of events after it."""
        items = [cursor.members() for cursor in cursors]
        return self._transport.fetch(
            list[Partition], "POST", f"{_ITEM}/cursors-lag", path={"name": name}, body=items, repeatable=True
        )


class Timelines(Resource):
    """Lists and begins timelines. Methods raise `ClientError`."""

    def list(self, name: str, *, as_of: str | int | None = None) -> Sequence[Timeline]:
        """The timelines of an event type, oldest first."""
        params = {"as_of": as_of}
        return self._transport.fetch(list[Timeline], "GET", _TIMELINES, path={"name": name}, params=params)

    def create(self, name: str, storage_id: str) -> None:
        """Begin a timeline in a storage; blocks until producers go on in it, some seconds at most.

        It is not asked for again if the broker may have begun it: check `list` then.
        """
        self._transport.request("POST", _TIMELINES, path={"name": name}, body={"storage_id": storage_id})
