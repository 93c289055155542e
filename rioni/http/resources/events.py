"""`/event-types/{name}/events` and `…/deleted-events`: publishing, and the low-level stream.

Sources: reference publishing#publish-events, low-level-streams#checks.
"""

import contextlib
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import falcon
import msgspec
import orjson

from rioni.commands.publisher import DeleteEvents, Published, Publisher, PublishEvents
from rioni.domain.access.authorization import Subject
from rioni.domain.avro.binary import MEDIA_TYPE
from rioni.domain.errors import (
    EventTypeNotFound,
    Invalid,
    InvalidCursor,
    InvalidStartCursor,
    Malformed,
    NotFound,
)
from rioni.domain.kpis import BatchPublished
from rioni.domain.publishing import headers
from rioni.domain.publishing.results import ItemResult
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.parameters import StreamParameters, low_level_parameters
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, newest, readable_place
from rioni.domain.subscriptions.filter_check import check_filter
from rioni.domain.system.client_activity import PUBLISH, READ, resource_of
from rioni.domain.timelines.position import BEGIN, EventTypePartition, TimelinePosition
from rioni.http.bodies.reading import read_body
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.middleware.access_log import SLO_BUCKETS, ms_spent, slo_bucket
from rioni.http.request_parsing import media_type
from rioni.http.resources.filter_evaluations import schemas_of, warning
from rioni.http.resources.streams import (
    HttpClient,
    StreamCounters,
    respond,
    respond_to_head,
    stream_counters,
    stream_limits,
)
from rioni.http.streaming.server_sent_events import LAST_EVENT_ID, LOW_LEVEL_PARTITIONS_MAX, last_event, wants_events
from rioni.http.streaming.streams import LowLevelStream
from rioni.projections.queries.timeline_reader import offset_ranges_of


# --- Opens low-level streams: checks, start positions and slots ---
#
# Source: reference low-level-streams#checks, low-level-streams#start-position, low-level-streams#connection-limits.

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
    """The filter for events; None for all."""

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


RESULTS_MAX = 5_000
"""PERF: writing this many results takes 1 ms; more are written in a thread."""
READ_FIRST_BYTES_MAX = 65_536
"""Bodies of at most this length are read before authorization."""


class EventsResource(Resource):
    """The events of one event type."""

    def __init__(self, dependencies: Dependencies) -> None:
        super().__init__(dependencies)
        self._counters = stream_counters(dependencies.metrics, "low-level")
        seconds = dependencies.metrics.publish_seconds
        # PERF: the library takes 4 µs to find them.
        self._seconds = {bucket: seconds.labels(bucket) for bucket in SLO_BUCKETS}

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Publish a batch: 200 and nothing more if it is stored, else a result for each event.

        That comes with 422 if nothing was stored because an event was refused, and with 207 if not all of them could be
        stored.
        """
        command = PublishEvents(**_request(req, name, self._dependencies))
        published = _publisher(req, self._dependencies).publish(
            command, subject_of(req), self._dependencies.quotas.publishing(req)
        )
        _answer(resp, name, published, self._dependencies)
        _report(req, self._dependencies, command, published)
        self._seconds[slo_bucket(len(command.body))].observe(time.monotonic() - req.context.started_at)
        if published.events:
            self._dependencies.metrics.event_types.add(name, events=published.events, bytes_=len(command.body))

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Stream events of some or all partitions."""
        open_low_level_stream(req, resp, name, self._dependencies, self._counters)


class DeletedEventsResource(Resource):
    """Deletions from one compacted event type."""

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Delete the events that have the keys of a batch; answers as publishing does."""
        command = DeleteEvents(**_request(req, name, self._dependencies))
        deleted = _publisher(req, self._dependencies).delete(
            command, subject_of(req), self._dependencies.quotas.publishing(req)
        )
        _answer(resp, name, deleted, self._dependencies)
        _report(req, self._dependencies, command, deleted)
        if deleted.events:
            self._dependencies.metrics.event_types.add(name, deleted=deleted.events)


def _publisher(req: falcon.Request, dependencies: Dependencies) -> Publisher:
    """The publisher for the body's media type."""
    return dependencies.avro_publisher if media_type(req.content_type) == MEDIA_TYPE else dependencies.publisher


def _request(req: falcon.Request, name: str, dependencies: Dependencies) -> dict[str, Any]:
    """Arguments of both commands; headers are validated before the body is read."""
    tag = req.get_header(headers.CONSUMER_TAG)
    key = req.get_header(headers.IDEMPOTENCY_KEY)
    return {
        "event_type": name,
        "flow_id": req.context.flow_id,
        "span_ctx": req.context.span_ctx,
        "subscription_id": None if tag is None else headers.tagged_subscription(tag),
        "idempotency_key": None if key is None else headers.check_key(key),
        "body": _body(req, name, dependencies),
    }


def _body(req: falcon.Request, name: str, dependencies: Dependencies) -> bytes:
    """The body; a large one is read only if the subject may write to the event type.

    The contract knows that a body can't be read before it knows the event type, so short ones are read first.
    """
    length = req.content_length
    if length is None or length > READ_FIRST_BYTES_MAX or req.env.get("HTTP_CONTENT_ENCODING"):
        subject = subject_of(req)
        dependencies.registry.refresh()
        dependencies.access.blacklist("PRODUCER", subject, (name,))
        dependencies.access.event_type(subject, name, "WRITE")
    return read_body(req, dependencies.config.body_bytes_max)


def _answer(resp: falcon.Response, name: str, published: Published, dependencies: Dependencies) -> None:
    metrics = dependencies.metrics
    if published.rejected:
        metrics.event_types.add(name, refused=1)
        resp.status = HTTPStatus.UNPROCESSABLE_ENTITY.value
        resp.data = _encoded(published.rejected, dependencies)
    elif published.partly:
        resp.status = HTTPStatus.MULTI_STATUS.value
        resp.data = _encoded(published.partly, dependencies)
    if published.duplicates:
        metrics.event_types.add(name, duplicates=published.duplicates)


def _encoded(results: Sequence[ItemResult], dependencies: Dependencies) -> bytes:
    if len(results) <= RESULTS_MAX:
        return msgspec.json.encode(results)
    return dependencies.compute_pool(_encoded_in_parts, results)


def _encoded_in_parts(results: Sequence[ItemResult]) -> bytes:
    """Encode results as a single call would, but in parts, so that other threads can run in between."""
    starts = range(0, len(results), RESULTS_MAX)
    return (
        b"[" + b",".join([msgspec.json.encode(results[start : start + RESULTS_MAX])[1:-1] for start in starts]) + b"]"
    )


def _report(
    req: falcon.Request, dependencies: Dependencies, command: PublishEvents | DeleteEvents, published: Published
) -> None:
    """Record the stored events: as activity of the client and, if they are the whole batch, for KPI events."""
    subject = subject_of(req)
    if published.events:
        # It may have been deleted meanwhile.
        with contextlib.suppress(EventTypeNotFound):
            resource = resource_of(dependencies.registry.event_type(command.event_type))
            dependencies.activity.record(PUBLISH, resource, subject.key, published.events)
    # If a batch was stored earlier, nothing is stored now.
    if published.partly or not published.events or not dependencies.usage.on:
        return
    measurement = BatchPublished(
        at_ms=dependencies.clock.now_ms(),
        event_type=command.event_type,
        app=subject.name,
        token_realm=subject.realm,
        number_of_events=published.events,
        ms_spent=ms_spent(req),
        batch_size=len(command.body),
    )
    dependencies.usage.published(measurement)
