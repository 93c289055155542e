"""Turns a request that has passed all checks into a streaming response."""

from collections.abc import Callable
from random import SystemRandom

import falcon

from rioni.domain.errors import Blocked, Denied, EventTypeNotFound, SubscriptionNotFound
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.parameters import StreamLimits
from rioni.http.compression import GzipStream, accepts_gzip
from rioni.http.metrics import Metrics
from rioni.http.services import LOG_KEY, STOPPING_KEY, Services
from rioni.http.streaming.pump import Client, LowLevelStream, Source, SubscriptionStream, client_gone


STREAM_MEDIA_TYPE = "application/x-json-stream"

_random = SystemRandom()


class Meter:
    """Counts a stream as open until it is closed, and its events."""

    def __init__(self, metrics: Metrics, api: str, release: Callable[[], None] = lambda: None) -> None:
        """Count a stream as open.

        Args:
            metrics: of this process.
            api: `low-level` or `subscription`.
            release: called when the stream is closed.
        """
        self._streams = metrics.streams.labels(api)
        self._events = metrics.streamed_events.labels(api)
        self._release = release
        self._streams.inc()

    def events(self, count: int) -> None:
        """Count events that were written."""
        self._events.inc(count)

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


def sources_of(services: Services, event_type: str) -> list[Source]:
    """Where the partitions of an event type lie, by number."""
    timeline = services.registry.timelines(event_type).active
    return [Source(timeline.topic, number, timeline.order) for number in range(timeline.partitions)]


def client_of(
    req: falcon.Request,
    services: Services,
    check: Callable[[], None],
    meter: Meter,
) -> Client:
    """What a stream asks about its client.

    Args:
        req: carries the client's socket.
        services: of this process.
        check: raises, as at the beginning of the stream, where it may not go on; the registry is up to date then.
        meter: counts the stream and its events.
    """

    def ended() -> End | None:
        if services.stopping.is_set():
            return End(Reason.SHUTDOWN)
        services.registry.refresh()
        return _why_refused(check)

    gone = client_gone(req.env["gunicorn.socket"])
    return Client(gone=gone, ended=ended, keys=(LOG_KEY, STOPPING_KEY), on_events=meter.events, on_close=meter.close)


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


def respond(req: falcon.Request, resp: falcon.Response, stream: LowLevelStream | SubscriptionStream) -> None:
    """Make a stream the body of a response; compressed, if the client accepts that."""
    resp.content_type = STREAM_MEDIA_TYPE
    resp.stream = stream
    if accepts_gzip(req):
        resp.set_header("Content-Encoding", "gzip")
        resp.stream = GzipStream(stream)
