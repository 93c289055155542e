"""Partitions and timelines of event types, and cursor arithmetic."""

from collections.abc import Sequence

import msgspec

from rioni.client._async.transport import Transport
from rioni.wire.event_types import Partition, Timeline
from rioni.wire.events import Cursor, CursorSpecification, Distance


_EVENT_TYPE = "/event-types/{name}"
_PARTITIONS = "/event-types/{name}/partitions"
_TIMELINES = "/event-types/{name}/timelines"


class Partitions:
    """Shows and adds partitions, and computes with cursors. Methods raise `ClientError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, name: str, *, cursors: Sequence[Cursor] = ()) -> Sequence[Partition]:
        """All partitions in the order of their numbers.

        Args:
            name: of the event type.
            cursors: places after which unconsumed events are counted; their partitions come last, in this order.
        """
        wanted = [{"partition": cursor.partition, "offset": cursor.offset} for cursor in cursors]
        params = {"cursors": msgspec.json.encode(wanted).decode() if wanted else None}
        return await self._transport.fetch(list[Partition], "GET", _PARTITIONS, path={"name": name}, params=params)

    async def get(self, name: str, partition: str, *, consumed_offset: str | None = None) -> Partition:
        """A partition, with the number of events after `consumed_offset` if that is given; raises NotFound."""
        path = {"name": name, "partition": partition}
        params = {"consumed_offset": consumed_offset}
        return await self._transport.fetch(Partition, "GET", f"{_PARTITIONS}/{{partition}}", path=path, params=params)

    async def set_count(self, name: str, count: int) -> None:
        """Add partitions until there are `count`; events of a key may go to another partition from then on."""
        template = f"{_EVENT_TYPE}/partition-count"
        await self._transport.request("PUT", template, path={"name": name}, body={"partition_count": count})

    async def distances(
        self, name: str, pairs: Sequence[tuple[CursorSpecification, CursorSpecification]]
    ) -> Sequence[Distance]:
        """The number of positions from the first cursor of each pair to the second."""
        items = [{"initial_cursor": first.members(), "final_cursor": last.members()} for first, last in pairs]
        return await self._transport.fetch(
            list[Distance], "POST", f"{_EVENT_TYPE}/cursor-distances", path={"name": name}, body=items, repeatable=True
        )

    async def shift(self, name: str, cursors: Sequence[CursorSpecification]) -> Sequence[Cursor]:
        """The cursors that are `shift` positions after each of these, or before it."""
        items = [cursor.members() for cursor in cursors]
        return await self._transport.fetch(
            list[Cursor], "POST", f"{_EVENT_TYPE}/shifted-cursors", path={"name": name}, body=items, repeatable=True
        )

    async def lag(self, name: str, cursors: Sequence[CursorSpecification]) -> Sequence[Partition]:
        """The partition of each cursor, with the number of events after it."""
        items = [cursor.members() for cursor in cursors]
        return await self._transport.fetch(
            list[Partition], "POST", f"{_EVENT_TYPE}/cursors-lag", path={"name": name}, body=items, repeatable=True
        )


class Timelines:
    """Lists and begins timelines. Methods raise `ClientError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, name: str, *, as_of: str | int | None = None) -> Sequence[Timeline]:
        """The timelines of an event type, oldest first."""
        params = {"as_of": as_of}
        return await self._transport.fetch(list[Timeline], "GET", _TIMELINES, path={"name": name}, params=params)

    async def create(self, name: str, storage_id: str) -> None:
        """Begin a timeline in a storage; blocks until producers go on in it, some seconds at most.

        It is not asked for again if the broker may have begun it: check `list` then.
        """
        await self._transport.request("POST", _TIMELINES, path={"name": name}, body={"storage_id": storage_id})
