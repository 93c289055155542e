"""Turns a request that has passed all checks into a streaming response."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from random import SystemRandom

import falcon

from rioni.domain.avro.batches import MEDIA_TYPE
from rioni.domain.streaming.parameters import StreamLimits
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.http.answers.compression import GzipStream, accepts_gzip
from rioni.http.caller import caller_of
from rioni.http.dependencies import Dependencies
from rioni.http.streaming.avro_frames import AvroFrames, LengthPrefixedAvroFrames
from rioni.http.streaming.json_frames import Frames, FrameWriter
from rioni.http.streaming.server_sent_events import ServerSentEvents, set_headers, wants_events


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
        places: where a low-level stream begins.
        created_at: of the event type of a low-level stream.
        stream_id: of a subscription's stream.
        proof: makes what the client proves with that the stream was its own; see `Resumption`.
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
    resp.stream = stream
    if accepts_gzip(req):
        resp.set_header("Content-Encoding", "gzip")
        resp.stream = GzipStream(stream)


def respond_to_head(req: falcon.Request, resp: falcon.Response) -> None:
    """Answer with the headers that all streams of this format have; no stream is opened."""
    respond(req, resp, _nothing())


def _nothing() -> Iterator[bytes]:
    yield from ()
