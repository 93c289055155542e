"""The archive's view of a broker over HTTP: event types, schemas, the bounds of partitions, and events.

Every call blocks until the broker answers, also over an outage that is shorter than `Server.retry_s`, and raises
Unavailable if it does not, or refuses.
"""

import contextlib
import re
from collections.abc import Generator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import orjson

from rioni.client import ConnectionFailed, TooManyRequests
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.annotations import MATERIALIZE
from rioni.domain.event_types.rules import is_event_type_name
from rioni.domain.timelines.position import TimelinePosition, parse_offset
from rioni.domain.timelines.timeline import FIRST_ORDER
from rioni.tools.api_client import Outage, RequestFailed, answered, call
from rioni.tools.load_client import Server


PAGE = 100
BATCH_EVENTS = 500
FLUSH_TIMEOUT_S = 1
"""Seconds without an event after which a partition counts as read to its end, for the time being."""
EVENTS_MAX = 1_000_000
"""Events of a request; the next one goes on."""
SCHEMAS_MAX = 1_000
"""The most versions of the schema of an event type that are read, the newest ones."""

_PARTITION = re.compile(r"[0-9]{1,9}")
_EXPIRED = re.compile(r"skipped events due to retention time passed, count: ([0-9]+)")


class _Schema(msgspec.Struct, frozen=True):
    type: str
    schema: str
    version: str


class _Options(msgspec.Struct, frozen=True):
    retention_time: int | None = None


class ArchivedEventType(msgspec.Struct, frozen=True):
    """The facts about an event type that the archive uses."""

    name: str
    category: str
    schema: _Schema
    created_at: datetime
    annotations: dict[str, str] | None = None
    options: _Options = _Options()

    @property
    def identity(self) -> str:
        """Tells event types apart that had the same name one after the other."""
        return self.created_at.isoformat()

    @property
    def created_at_ms(self) -> int:
        """The identity as tables keep it."""
        return round(self.created_at.timestamp() * 1_000)


class Partition(NamedTuple):
    """The places of the first and the last event in a partition."""

    name: str
    before_oldest: TimelinePosition
    """The place before the oldest event that can be read."""
    newest: TimelinePosition


class _Cursor(msgspec.Struct, frozen=True):
    partition: str
    offset: str


class _Info(msgspec.Struct, frozen=True):
    debug: str = ""


class Batch(msgspec.Struct, frozen=True):
    """Events of a partition, as the broker stores them, and the offset of the last one."""

    cursor: _Cursor
    events: list[msgspec.Raw] = []
    info: _Info = _Info()

    @property
    def expired(self) -> int:
        """The number of events before this batch that the retention time has removed unread."""
        return sum(map(int, _EXPIRED.findall(self.info.debug)))


class Broker:
    """A client of one broker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._decoder = msgspec.json.Decoder(Batch)

    def marked_event_types(self) -> list[str]:
        """The names of the event types whose annotations ask to keep their events in the data lake, unchecked."""
        names: list[str] = []
        while True:
            query = urlencode({"annotation": f"{MATERIALIZE}:on", "limit": PAGE, "offset": len(names)})
            page = self._get(f"/event-types?{query}", list[ArchivedEventType])
            names += [each.name for each in page]
            if len(page) < PAGE:
                return names

    def event_type(self, name: str) -> ArchivedEventType:
        """An event type as it is now.

        Raises:
            Unavailable: the broker does not answer, or refuses, or answers with another event type.
        """
        found: ArchivedEventType = self._get(_path(_checked(self._server, name)), ArchivedEventType)
        if found.name != name:
            raise Unavailable(f"{self._server.url} was asked for {name}, and answered with {found.name!r:.100}.")
        return found

    def schemas(self, name: str) -> list[tuple[str, str]]:
        """The versions of the schema of an event type as pairs of type and text, the oldest first."""
        found: list[_Schema] = []
        while len(found) < SCHEMAS_MAX:
            page = self._get(f"{_path(name)}/schemas?limit={PAGE}&offset={len(found)}", _Schemas).items
            found += page
            if len(page) < PAGE:
                break
        return [(each.type, each.schema) for each in reversed(found)]

    def partitions(self, name: str) -> list[Partition]:
        """The bounds of the partitions of an event type, as they are now."""
        found = self._get(f"{_path(name)}/partitions", list[_Partition])
        for each in found:
            # Names of partitions become parts of requests, and of the state in tables and checkpoints.
            if not _PARTITION.fullmatch(each.partition):
                raise Unavailable(
                    f"{self._server.url} names a partition of {name} {each.partition!r:.100}, which is no number."
                )
        return [
            Partition(each.partition, _before(place(each.oldest_available_offset)), place(each.newest_available_offset))
            for each in found
        ]

    def distance(self, name: str, partition: str, after: TimelinePosition, to: TimelinePosition) -> int:
        """The number of events after one place up to and including another one."""
        if after.order == to.order:
            return to.position - after.position
        pair = {
            "initial_cursor": {"partition": partition, "offset": after.offset},
            "final_cursor": {"partition": partition, "offset": to.offset},
        }
        _, answer = call(self._server, "POST", f"{_path(name)}/cursor-distances", [pair], repeatable=True)
        return int(answer[0]["distance"])

    def check_identity(self, name: str, created_at: str) -> None:
        """Check that an event type is the one that was created then.

        Raises:
            Unavailable: it was deleted, and another one has the name now; or the broker does not answer, or refuses.
        """
        if self.event_type(name).identity != created_at:
            raise Unavailable(f"{name} was deleted and created again while it was read; read again.")

    def stream(
        self,
        name: str,
        created_at: str,
        partition: str,
        after: TimelinePosition,
        count: int,
        *,
        alone: bool = False,
        keep_alives: int = 1,
        waits: bool = True,
    ) -> contextlib.closing[Generator[Batch, None, None]]:
        """A stream of a partition, to be used in a block: batches that have events, or report that some have expired.

        It ends after `count` events, or when there was none for a while. If the broker ends it before, or the
        connection breaks, it goes on after the last event.

        Args:
            name: of the event type.
            created_at: its identity, which is checked before it goes on.
            partition: its name.
            after: the last place read.
            count: the events that are there at most, so that none waits for a batch to be full.
            alone: whether each event comes in a batch of its own.
            keep_alives: how many seconds without an event end the stream.
            waits: whether 429, the answer to a client with too many streams, is ridden out as an outage is.

        Raises:
            RequestRefused: the broker refuses.
            Unavailable: the broker does not answer, or has another event type of that name.
        """
        size = 1 if alone else BATCH_EVENTS
        return contextlib.closing(self._batches(name, created_at, partition, after, count, size, keep_alives, waits))

    def _batches(
        self,
        name: str,
        created_at: str,
        partition: str,
        after: TimelinePosition,
        count: int,
        size: int,
        keep_alives: int,
        waits: bool,  # noqa: FBT001 - of `stream`
    ) -> Generator[Batch, None, None]:
        outage = Outage(self._server)
        while count > 0:
            left, quiet, said = min(count, EVENTS_MAX), 0, ""
            query = {"batch_limit": min(left, size), "stream_limit": left}
            query |= {"batch_flush_timeout": FLUSH_TIMEOUT_S, "stream_keep_alive_limit": keep_alives}
            path = f"{_path(name)}/events?{urlencode(query)}"
            cursors = [{"partition": partition, "offset": after.offset}]
            headers = {"X-Nakadi-Cursors": orjson.dumps(cursors).decode()}
            try:
                with answered(self._server, "GET", path, headers=headers) as answer:
                    for line in answer.lines():
                        batch = self._batch(line)
                        if batch.events or batch.expired:
                            outage.succeeded()
                            after, quiet = place(batch.cursor.offset), 0
                            left, count = left - len(batch.events), count - len(batch.events)
                            yield batch
                        elif not batch.info.debug:
                            quiet += 1
                        said = batch.info.debug
                if quiet >= keep_alives:
                    return
                if left > 0:
                    raise self._broken_off(name, partition, said)
            except RequestFailed as ex:
                if isinstance(ex.error, TooManyRequests) and not waits:
                    raise
                outage.failed(ex)
                self.check_identity(name, created_at)

    def _batch(self, line: bytes) -> Batch:
        try:
            return self._decoder.decode(line)
        except msgspec.MsgspecError as ex:
            raise Unavailable(f"{self._server.url} sent a batch that can't be read: {ex}") from ex

    def _broken_off(self, name: str, partition: str, said: str) -> RequestFailed:
        text = f"{self._server.url} has ended the stream of {name}, partition {partition}, before its end"
        error = ConnectionFailed(f"{text}: {said}" if said else text)
        return RequestFailed(f"{error}.", error)

    def _get(self, path: str, kind: Any) -> Any:
        _, answer = call(self._server, "GET", path)
        try:
            return msgspec.convert(answer, kind)
        except msgspec.ValidationError as ex:
            raise Unavailable(f"What {self._server.url}{path} answers can't be read: {ex}") from ex


class _Schemas(msgspec.Struct, frozen=True):
    items: list[_Schema]


class _Partition(msgspec.Struct, frozen=True):
    partition: str
    oldest_available_offset: str
    newest_available_offset: str


def place(offset: str) -> TimelinePosition:
    """The place that an offset of the broker, or of a table, names."""
    found = parse_offset(offset, partition="", oldest_order=FIRST_ORDER)
    assert found is not None, "the broker names no place BEGIN"
    return found


def _before(oldest: TimelinePosition) -> TimelinePosition:
    return TimelinePosition(oldest.order, oldest.position - 1)


def _checked(server: Server, name: str) -> str:
    """A name that can become a path or the name of a table."""
    if not is_event_type_name(name):
        raise Unavailable(f"{server.url} has no event type {name!r:.100}: event types can't have such a name.")
    return name


def _path(name: str) -> str:
    return f"/event-types/{quote(name, safe='')}"
