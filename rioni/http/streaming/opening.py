"""Turns a request that has passed all checks into a streaming response."""

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from random import SystemRandom

import falcon
import msgspec
import structlog

from rioni.domain.avro.batches import MEDIA_TYPE
from rioni.domain.coordination_ports import EventTypePartition
from rioni.domain.cursor import Place
from rioni.domain.errors import Blocked, Denied, EventTypeNotFound, SubscriptionNotFound, Unavailable
from rioni.domain.ports import LOG_KEY
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.parameters import StreamLimits, StreamParameters
from rioni.domain.streaming.visibility import Visibility
from rioni.http.authentication import caller_of
from rioni.http.compression import GzipStream, accepts_gzip
from rioni.http.metrics import Metrics
from rioni.http.services import STOPPING_KEY, Services
from rioni.http.streaming.avro_frames import AvroFrames
from rioni.http.streaming.connection import client_gone
from rioni.http.streaming.frames import Frames, FrameWriter
from rioni.http.streaming.pump import Pump
from rioni.http.streaming.server_sent_events import ServerSentEvents, wants_events
from rioni.http.streaming.surroundings import Client


_random = SystemRandom()
_log = structlog.get_logger("rioni.streams")


class Meter:
    """Counts a stream as open until it is closed, and its events."""

    __slots__ = ("_attend", "_events", "_hidden", "_lost", "_measure", "_release", "_streams")

    def __init__(
        self,
        metrics: Metrics,
        api: str,
        measure: Callable[[str, int, int], None],
        attend: Callable[[int], None],
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Count a stream as open.

        Args:
            metrics: of this process.
            api: `low-level` or `subscription`.
            measure: told of every batch its event type, how many events, how many bytes.
            attend: told now and then that the client is there, and how many events it has got since.
            release: called when the stream is closed.
        """
        self._streams = metrics.streams.labels(api)
        self._events = metrics.streamed_events.labels(api)
        self._hidden = metrics.hidden_events.labels(api)
        self._lost = metrics.lost_events.labels(api)
        self._measure, self._attend, self._release = measure, attend, release
        self._streams.inc()
        self.present()

    def batch(self, event_type: str, events: int, size: int) -> None:
        """Count a batch that was written."""
        self._events.inc(events)
        self._measure(event_type, events, size)
        self._attend(events)

    def present(self) -> None:
        """Note that the client is still there."""
        self._attend(0)

    def hidden(self, count: int) -> None:
        """Count events that were passed over."""
        self._hidden.inc(count)

    def lost(self, count: int) -> None:
        """Count events that were gone before they could be read."""
        self._lost.inc(count)

    def close(self) -> None:
        """Count the stream as closed."""
        self._streams.dec()
        self._release()


def stream_limits(services: Services) -> StreamLimits:
    """What the settings, and chance, add to the wishes of a client."""
    config = services.config
    spread_s = _random.uniform(-config.stream_timeout_spread_s, config.stream_timeout_spread_s)
    return StreamLimits(
        stream_timeout_default_s=config.stream_timeout_default_s + spread_s,
        stream_timeout_max_s=config.stream_timeout_max_s,
        commit_timeout_max_s=config.commit_timeout_max_s,
        memory_bytes_max=config.stream_memory_bytes_max,
    )


def client_of(
    req: falcon.Request,
    services: Services,
    check: Callable[[], None],
    visibility: Callable[[], Visibility],
    meter: Meter,
    parameters: StreamParameters,
    *,
    places: Mapping[EventTypePartition, Place] | None = None,
    stream_id: str = "",
) -> Client:
    """What a stream asks about its client; the log says that it begins, and later why it ends.

    Args:
        req: carries the client's socket and token.
        services: of this process.
        check: raises, as at the beginning of the stream, where it may not go on; the registry is up to date then.
        visibility: which events it delivers now.
        meter: counts the stream and its events.
        parameters: of the stream; who commits, and reads nothing for the commit timeout, is cut off, and holds its
            partitions no longer.
        places: where a low-level stream begins.
        stream_id: of a subscription's stream.
    """
    caller = caller_of(req)

    def ended() -> End | None:
        if services.stopping.is_set():
            return End(Reason.SHUTDOWN)
        if caller.lapsed():
            return End(Reason.TOKEN_EXPIRED)
        meter.present()
        # Where nobody knows what has changed, what was right before goes on.
        with contextlib.suppress(Unavailable):
            services.refresh_streams()
        return _why_refused(check)

    connection = req.env["gunicorn.socket"]
    if parameters.max_uncommitted_events:
        connection.settimeout(min(services.config.body_timeout_s, parameters.commit_timeout_s))
    names = {"path": req.path, "client": caller.subject.name, "flow_id": req.context.flow_id, "stream_id": stream_id}

    def begin() -> None:
        wishes = msgspec.structs.asdict(parameters)
        wishes["partitions"] = [f"{name}:{number}" for name, number in places or parameters.partitions]
        _log.info("stream started", **names, **wishes)

    return Client(
        gone=client_gone(connection),
        frames=_frames(req, places, stream_id),
        ended=ended,
        visibility=visibility,
        keys=(LOG_KEY, STOPPING_KEY),
        on_begin=begin,
        on_batch=meter.batch,
        on_hidden=meter.hidden,
        on_lost=meter.lost,
        on_end=lambda reason: _log.info("stream ended", **names, reason=reason.name.lower()),
        on_close=meter.close,
    )


def wants_avro(req: falcon.Request) -> bool:
    """Whether a client reads binary batches: it must ask for them and for nothing else (consumption contract 8.1)."""
    return req.accept.strip().lower() == MEDIA_TYPE


def _frames(
    req: falcon.Request, places: Mapping[EventTypePartition, Place] | None, stream_id: str
) -> Callable[[Callable[[], str] | None], FrameWriter]:
    """How the client wants to read."""
    if wants_avro(req):
        return AvroFrames
    if wants_events(req):
        return partial(ServerSentEvents, places=places, stream_id=stream_id)
    return Frames


def _why_refused(check: Callable[[], None]) -> End | None:
    try:
        check()
    except SubscriptionNotFound:
        return End(Reason.SUBSCRIPTION_DELETED)
    except EventTypeNotFound:
        return End(Reason.EVENT_TYPE_DELETED)
    except Denied as ex:
        return End(Reason.UNAUTHORIZED, str(ex))
    except Blocked:
        return End(Reason.BLOCKED)
    return None


def respond(req: falcon.Request, resp: falcon.Response, stream: Pump) -> None:
    """Make a stream the body of a response; compressed, if the client accepts that."""
    resp.content_type = stream.media_type
    if stream.media_type == ServerSentEvents.MEDIA_TYPE:
        resp.cache_control = ["no-store"]
    resp.stream = stream
    if accepts_gzip(req):
        resp.set_header("Content-Encoding", "gzip")
        resp.stream = GzipStream(stream)
