"""Opens low-level streams: checks, start positions and slots.

Source: reference low-level-streams#checks, low-level-streams#start-position, low-level-streams#connection-limits.
"""

import contextlib
from collections.abc import Sequence

import falcon
import orjson

from rioni.domain.access.authorization import Subject
from rioni.domain.errors import (
    EventTypeNotFound,
    Invalid,
    InvalidCursor,
    InvalidStartCursor,
    Malformed,
    NotFound,
)
from rioni.domain.streaming.parameters import StreamParameters, low_level_parameters
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.subscriptions.activity import READ
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, newest, readable_place
from rioni.domain.subscriptions.filter_check import check_filter
from rioni.domain.timelines.position import BEGIN, EventTypePartition, TimelinePosition
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.http.resources.filter_evaluations import schemas_of, warning
from rioni.http.resources.streams.stream_client import HttpClient, StreamCounters
from rioni.http.resources.streams.stream_response import respond, respond_to_head, stream_limits
from rioni.http.streaming.low_level_stream import LowLevelStream
from rioni.http.streaming.server_sent_events import LAST_EVENT_ID, LOW_LEVEL_PARTITIONS_MAX, last_event, wants_events
from rioni.projections.queries.timeline_reader import offset_ranges_of


CURSORS_HEADER = "X-Nakadi-Cursors"
DEPRECATION = (
    "299 - nakadi - the Low-level API is deprecated and will be removed from a future release. "
    "Please consider migrating to the Subscriptions API."
)


def open_low_level_stream(
    req: falcon.Request, resp: falcon.Response, name: str, dependencies: Dependencies, counters: StreamCounters
) -> None:
    """Check a request in the contract's order, and begin to stream.

    Raises:
        Malformed: a parameter is not a number, or the cursors can't be read.
        Blocked: event type or application may not consume.
        NotFound: there is no such event type.
        AccessDenied: the subject may not read it.
        InvalidStartCursor: a cursor names nothing that can be read.
        Invalid: a parameter is out of range, or the filter can't be used.
        TooManyStreams: the client has too many streams.
    """
    subject, refused = subject_of(req), None
    dependencies.registry.refresh()
    try:
        parameters: StreamParameters | None = low_level_parameters(req.params, stream_limits(dependencies))
    except Invalid as ex:
        parameters, refused = None, ex

    try:
        _check(dependencies, subject, name)
    except EventTypeNotFound as ex:
        raise NotFound("topic not found") from ex
    ranges = offset_ranges_of(dependencies.registry.timelines(name), dependencies.stores)
    start = _start(_cursors_text(req, dependencies.registry.event_type(name).created_at, len(ranges)), name, ranges)
    if parameters is None:
        assert refused is not None
        raise refused
    if wants_events(req) and len(start) > LOW_LEVEL_PARTITIONS_MAX:
        raise Invalid(
            f"The ids of server-sent events have room for {LOW_LEVEL_PARTITIONS_MAX} partitions, and this stream would "
            f"have {len(start)}. Open several streams, each with the cursors of some partitions."
        )
    wanted = req.get_param("filter")
    warnings: Sequence[str] = ()
    if wanted is not None:
        # PERF: compiling takes milliseconds; it is remembered.
        warnings = dependencies.compute_pool(check_filter, wanted, schemas_of(dependencies, [name]))
    resp.set_header("Warning", ", ".join([DEPRECATION, *map(warning, warnings)]))
    if req.method == "HEAD":
        respond_to_head(req, resp)
        return
    release_slot = dependencies.stream_quota.acquire(subject.key, start.keys())
    with contextlib.ExitStack() as undo:
        undo.callback(release_slot)
        client = _Reader(req, dependencies, counters, parameters, release_slot, source=name, places=start)
        client.filter = wanted
        stream = LowLevelStream(parameters, start, dependencies.streams, client)
        undo.pop_all()
    respond(req, resp, stream)


class _Reader(HttpClient):
    """The client of a low-level stream."""

    __slots__ = ("filter",)
    API = "lola"
    ACTION = READ
    filter: str | None
    """Which events it wants; None for all."""

    def visibility(self) -> Visibility:
        return self.dependencies.access.visibility(self.subject, wanted=self.filter)

    def check(self) -> None:
        _check(self.dependencies, self.subject, self.source)


def _check(dependencies: Dependencies, subject: Subject, name: str) -> None:
    dependencies.access.blacklist("CONSUMER", subject, (name,))
    dependencies.access.event_type(subject, name, "READ")


def _cursors_text(req: falcon.Request, created_at: str, partitions: int) -> str | None:
    """The cursors in JSON; a browser can set no header, and comes back with the last id that it has seen.

    Of an event type that was deleted and created again since it has seen nothing: it gets all that there is.
    """
    header = req.get_header(CURSORS_HEADER)
    named = req.get_param("cursors") if header is None else header
    seen = req.get_header(LAST_EVENT_ID) if wants_events(req) else None
    last = last_event(req) if seen else None
    # A refusal sends the client of a ticket an id without cursors.
    if not last or not (last.cursors or not last.resume):
        return named
    if last.created_at in ("", created_at):
        return orjson.dumps(last.cursors).decode()
    wanted = [str(number) for number in range(partitions)] if named is None else [each for each, _ in _cursors(named)]
    return orjson.dumps([{"partition": each, "offset": BEGIN} for each in wanted]).decode()


def _start(
    header: str | None, name: str, partitions: Sequence[OffsetRanges]
) -> dict[EventTypePartition, TimelinePosition]:
    """The partitions to read, and the last place read in each: without cursors all of them, from the end."""
    if header is None:
        return {EventTypePartition(name, str(number)): newest(ranges) for number, ranges in enumerate(partitions)}
    try:
        return {
            EventTypePartition(name, partition): readable_place(name, partition, offset, partitions)
            for partition, offset in _cursors(header)
        }
    except InvalidCursor as ex:
        raise InvalidStartCursor(str(ex)) from ex


def _cursors(header: str) -> list[tuple[str, str]]:
    try:
        items = orjson.loads(header)
        cursors = [(item.get("partition"), item.get("offset")) for item in items]
    except (orjson.JSONDecodeError, AttributeError, TypeError) as ex:
        raise Malformed("incorrect syntax of X-nakadi-cursors header") from ex
    if not isinstance(items, list):
        raise Malformed("incorrect syntax of X-nakadi-cursors header")
    if not cursors:
        raise InvalidStartCursor("invalid cursor format, partition: null offset: null")
    for partition, offset in cursors:
        if partition is None:
            raise InvalidStartCursor("partition must not be null")
        if offset is None:
            raise InvalidStartCursor("offset must not be null")
        if not isinstance(partition, str) or not isinstance(offset, str):
            raise Malformed("incorrect syntax of X-nakadi-cursors header")
    named = [partition for partition, _ in cursors]
    for partition in named:
        if named.count(partition) > 1:
            raise InvalidStartCursor(f"more than one cursor for partition {partition}")
    return cursors
