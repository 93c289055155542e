"""The parts that all streams over HTTP share: the response, token validity, usage accounting, and tickets."""

import contextlib
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import unquote
from uuid import uuid4

import falcon
import msgspec
import structlog

from rioni.domain.avro.binary import MEDIA_TYPE
from rioni.domain.errors import (
    AccessDenied,
    Blocked,
    EventTypeNotFound,
    InvalidFields,
    SubscriptionNotFound,
    Unavailable,
)
from rioni.domain.kpis import BatchStreamed
from rioni.domain.ports.host import LOG_KEY
from rioni.domain.streaming.batching import Visibility
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.parameters import StreamLimits, StreamParameters
from rioni.domain.system.client_activity import resource_of
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.domain.timestamps import rfc3339
from rioni.http.answers import send_stream
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.caller import caller_of
from rioni.http.dependencies import STOPPING_KEY, Dependencies, Resource
from rioni.http.metrics.collectors import Metrics
from rioni.http.middleware.authentication import bearer_token
from rioni.http.middleware.base_path import without_base_path
from rioni.http.streaming.frames import AvroFrames, Frames, FrameWriter, LengthPrefixedAvroFrames
from rioni.http.streaming.server_sent_events import ServerSentEvents, set_headers, wants_events
from rioni.http.streaming.stream_context import StreamClient


if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge


# --- Turns a request that has passed all checks into a streaming response ---

_random = SystemRandom()


def stream_limits(dependencies: Dependencies) -> StreamLimits:
    """Limits and defaults of streams from the settings, with a random stream timeout."""
    config = dependencies.config
    spread_s = _random.uniform(-config.stream_timeout_jitter_s, config.stream_timeout_jitter_s)
    return StreamLimits(
        stream_timeout_default_s=config.stream_timeout_default_s + spread_s,
        stream_timeout_max_s=config.stream_timeout_max_s,
        commit_timeout_max_s=config.commit_timeout_max_s,
        memory_bytes_max=config.stream_memory_bytes_max,
    )


def _avro_frames(req: falcon.Request) -> type[AvroFrames] | None:
    """The binary form that a client asks for; it must ask for it and for nothing else.

    Source: reference streams#parameters.
    """
    kind, _, parameter = req.accept.replace(" ", "").lower().partition(";")
    if kind != MEDIA_TYPE:
        return None
    return {"": AvroFrames, "framing=length": LengthPrefixedAvroFrames}.get(parameter)


def wanted_frames(
    req: falcon.Request,
    *,
    places: Mapping[EventTypePartition, TimelinePosition] | None = None,
    created_at: str = "",
    stream_id: str = "",
    proof: Callable[[], str],
) -> Callable[[Callable[[], str] | None], FrameWriter]:
    """Return the encoder of batches in the format that the client accepts.

    Args:
        req: has the accepted media types.
        places: the places at which a low-level stream begins.
        created_at: the creation time of the event type of a low-level stream.
        stream_id: the id of a subscription's stream.
        proof: makes the proof by which the client can show that the stream was its own; see `Resumption`.
    """
    writer = _writer(req)
    if issubclass(writer, ServerSentEvents):
        caller = caller_of(req)
        resume = caller.resume if caller.resume() else None
        return partial(writer, places=places, created_at=created_at, stream_id=stream_id, proof=proof(), resume=resume)
    return writer


def _writer(req: falcon.Request) -> type[AvroFrames] | type[Frames] | type[ServerSentEvents]:
    if avro_frames := _avro_frames(req):
        return avro_frames
    return ServerSentEvents if wants_events(req) else Frames


def respond(req: falcon.Request, resp: falcon.Response, stream: Iterator[bytes]) -> None:
    """Make a stream the body of a response; compressed, if the client accepts that."""
    resp.content_type = _writer(req).MEDIA_TYPE
    if resp.content_type == ServerSentEvents.MEDIA_TYPE:
        set_headers(resp)
    send_stream(req, resp, stream)


def respond_to_head(req: falcon.Request, resp: falcon.Response) -> None:
    """Answer with the headers that all streams of this format have; no stream is opened."""
    respond(req, resp, _nothing())


def _nothing() -> Iterator[bytes]:
    yield from ()


# --- The client of a stream over HTTP: connection, token validity, and usage accounting ---

_log = structlog.get_logger("rioni.streams")


class StreamCounters(NamedTuple):
    """Metrics of the streams of one API."""

    streams: "Gauge"
    events: "Counter"
    filtered: "Counter"
    filter_failures: "Counter"
    expired_unread: "Counter"


def stream_counters(metrics: Metrics, api: str) -> StreamCounters:
    """The counters of an API: `low-level` or `subscription`."""
    return StreamCounters(
        metrics.streams.labels(api),
        metrics.streamed_events.labels(api),
        metrics.filtered_events.labels(api),
        metrics.filter_failures.labels(api),
        metrics.expired_unread_events.labels(api),
    )


class HttpClient(StreamClient, ABC):
    """The HTTP client of a stream; counts against its quota until `on_close`.

    PERF: one object with methods instead of a function for each question, which took 2 kB more for each stream.
    """

    __slots__ = (
        "_caller",
        "_connection",
        "_counters",
        "_flow_id",
        "_frames",
        "_measured",
        "_parameters",
        "_partitions",
        "_path",
        "_release_slot",
        "_resource",
        "dependencies",
        "source",
        "stream_id",
        "subject",
    )
    API: ClassVar[str]
    """Name of the API in KPI events."""
    ACTION: ClassVar[str]
    """The action that is recorded as client activity."""
    keys = (LOG_KEY, STOPPING_KEY)

    def __init__(
        self,
        req: falcon.Request,
        dependencies: Dependencies,
        counters: StreamCounters,
        parameters: StreamParameters,
        release_slot: Callable[[], None],
        *,
        source: str,
        stream_id: str = "",
        places: Mapping[EventTypePartition, TimelinePosition] | None = None,
    ) -> None:
        """Begin.

        Args:
            req: carries the client's socket and token.
            dependencies: the dependencies of this process.
            counters: the counters of the API.
            parameters: those of the stream; a client that commits but reads nothing for the commit timeout is cut off
                and loses its partitions.
            release_slot: releases the client's slots.
            source: the name of the event type, or the id of the subscription.
            stream_id: the id of a subscription's stream.
            places: the places at which a low-level stream begins.
        """
        self.dependencies, self._counters, self._parameters, self._release_slot = (
            dependencies,
            counters,
            parameters,
            release_slot,
        )
        self.source, self.stream_id = source, stream_id
        event_type = None if stream_id else dependencies.registry.event_type(source)
        self._resource = source if event_type is None else resource_of(event_type)
        self._caller = caller_of(req)
        self.subject = self._caller.subject
        self._connection: socket.socket = req.env["gunicorn.socket"]
        if parameters.max_uncommitted_events:
            self._connection.settimeout(min(dependencies.config.body_timeout_s, parameters.commit_timeout_s))
        self._path, self._flow_id = req.path, req.context.flow_id
        self._partitions = parameters.partitions if places is None else places.keys()
        created_at = "" if event_type is None else event_type.created_at
        self._frames = wanted_frames(req, places=places, created_at=created_at, stream_id=stream_id, proof=self._proof)
        self._measured = ""
        """The id of the stream in KPI events, once there is one."""
        counters.streams.inc()
        self._record_activity(0)

    @abstractmethod
    def check(self) -> None:
        """Raise, as at the start of the stream, if it must end; the registry is up to date then."""

    @property
    def subscription_id(self) -> str | None:
        """The subscription through which the client reads, if any."""
        return self.source if self.stream_id else None

    def frames(self, token: Callable[[], str] | None) -> FrameWriter:
        """Write JSON, Avro or server-sent events, as the client has asked for."""
        return self._frames(token)

    def visibility(self) -> Visibility:
        """The events visible to the caller, through its subscription if there is one."""
        return self.dependencies.access.visibility(self.subject, self.subscription_id)

    def is_disconnected(self) -> bool:
        """Whether the connection has ended."""
        return is_disconnected(self._connection)

    def ended(self) -> End | None:
        """The reason to end: shutdown, an invalid token, or a failed recheck of access; None to continue."""
        if self.dependencies.stopping.is_set():
            return End(Reason.SHUTDOWN)
        if self._caller.is_expired():
            return End(Reason.TOKEN_EXPIRED)
        self._record_activity(0)
        # While changes can't be read, the previous decision stays valid.
        with contextlib.suppress(Unavailable):
            self.dependencies.refresh_streams()
        return self._why_refused()

    def on_begin(self) -> None:
        """Log client, resource and parameters of the stream."""
        wishes = msgspec.structs.asdict(self._parameters)
        wishes["partitions"] = [f"{name}:{number}" for name, number in self._partitions]
        _log.info("stream started", **self._names(), **wishes)

    def on_batch(self, event_type: str, events: int, size: int) -> None:
        """Count a batch, and record the client's activity."""
        self._counters.events.inc(events)
        self._measure(event_type, events, size)
        self._record_activity(events)

    def on_filtered(self, count: int) -> None:
        """Count skipped events."""
        self._counters.filtered.inc(count)

    def on_filter_failures(self, count: int) -> None:
        """Count events for which the filter could not be evaluated."""
        self._counters.filter_failures.inc(count)

    def on_expired_unread(self, count: int) -> None:
        """Count events that expired unread."""
        self._counters.expired_unread.inc(count)

    def on_end(self, reason: Reason) -> None:
        """Log why it ends."""
        _log.info("stream ended", **self._names(), reason=reason.label)

    def on_close(self) -> None:
        """Stop counting the stream, and release the client's slots; may block on the disk."""
        self._counters.streams.dec()
        if self._measured:
            self.dependencies.usage.stream_ended()
        self._release_slot()

    def _proof(self) -> str:
        if not self.stream_id:
            return ""
        try:
            return self.dependencies.resumption.proof(self.stream_id, self.subject)
        except Unavailable:
            # Without a proof, a client that reconnects waits for its former stream to end.
            return ""

    def _why_refused(self) -> End | None:
        try:
            self.check()
        except SubscriptionNotFound:
            return End(Reason.SUBSCRIPTION_DELETED)
        except EventTypeNotFound:
            return End(Reason.EVENT_TYPE_DELETED)
        except AccessDenied as ex:
            return End(Reason.UNAUTHORIZED, str(ex))
        except Blocked:
            return End(Reason.BLOCKED)
        return None

    def _record_activity(self, events: int) -> None:
        self.dependencies.activity.record(self.ACTION, self._resource, self.subject.key, events)

    def _measure(self, event_type: str, events: int, size: int) -> None:
        usage = self.dependencies.usage
        if not usage.on:
            return
        self._measured = self._measured or str(uuid4())
        measurement = BatchStreamed(
            at_ms=self.dependencies.clock.now_ms(),
            stream=self._measured,
            api=self.API,
            subscription=self.subscription_id,
            event_type=event_type,
            app=self.subject.name,
            token_realm=self.subject.realm,
            number_of_events=events,
            bytes_streamed=size,
        )
        usage.streamed(measurement)

    def _names(self) -> dict[str, str]:
        return {
            "path": self._path,
            "client": self.subject.name,
            "realm": self.subject.realm,
            "flow_id": self._flow_id,
            "stream_id": self.stream_id,
        }


TCP_ESTABLISHED = 1


def is_disconnected(connection: socket.socket) -> bool:
    """Whether a client has disconnected, by the state of its TCP connection; a half-closed one counts as well.

    PERF: the state of the connection costs 1 us and never blocks, unlike a look at the received data under gevent.
    """
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != TCP_ESTABLISHED
    except OSError:
        return True


# --- `/stream-tickets`: lets a browser open a stream without a token in its address (reference streams#tickets) ---

STREAM_PATH = re.compile(r"/(event-types|subscriptions)/[^/?#]+/events")


class StreamTicketsResource(Resource):
    """Makes tickets."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Make a ticket for a stream; permission to read it is checked when the stream is opened."""
        path = without_base_path(parsing.stream_ticket(read_json(req)), req.root_path)
        if not STREAM_PATH.fullmatch(path):
            raise InvalidFields([("path", "must be /event-types/{name}/events or /subscriptions/{id}/events")])
        token = bearer_token(req.get_header("Authorization")) or ""
        ticket, expires_at_ms = self._dependencies.stream_tickets.issue(unquote(path), token)
        resp.status = falcon.HTTP_201
        resp.cache_control = ["no-store"]
        resp.data = msgspec.json.encode(
            {"ticket": ticket, "path": req.root_path + path, "expires_at": rfc3339(expires_at_ms)}
        )
