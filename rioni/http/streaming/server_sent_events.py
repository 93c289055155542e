"""Writes batches as server-sent events, so that a browser can consume with nothing but `EventSource`.

An event's data is the batch as JSON, its id the cursors of the stream's partitions. A browser that has lost its
connection sends the last id back, in `Last-Event-ID`: a low-level stream goes on after these cursors; the stream of a
subscription commits them and takes over from the stream that wrote the id. A browser never connects again after an
answer other than 200, so refusals that pass are sent as an event. See
https://html.spec.whatwg.org/multipage/server-sent-events.html and reference streams#server-sent-events.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import falcon
import orjson

from rioni.domain.errors import Conflict, Malformed, RioniError, TooManyStreams, Unavailable
from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.http.caller import caller_of
from rioni.http.streaming.frames import Frames


MEDIA_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
RETRY_MS = 1_000
"""Milliseconds after which a browser connects again."""
RETRY_REFUSED_S = 3
"""Seconds after which a browser connects again if a refusal names no time."""
ID_BYTES_MAX = 7_000
"""An id is returned in a header, of which many proxies accept 8 kB; a longer one of a subscription's stream is cut."""
LOW_LEVEL_PARTITIONS_MAX = 250
"""The broker itself takes 16,448 bytes of a header; a low-level stream needs all of its cursors."""
PASSING = (Conflict, TooManyStreams, Unavailable)
"""Refusals that the same request may not get later."""
_QUALITY = re.compile(r"(?:^|;)\s*q=([01](?:\.[0-9]{0,3})?)")


def wants_events(req: falcon.Request) -> bool:
    """Whether a client reads server-sent events, which it has to name, rather than lines of JSON, if it names both."""
    accept = req.accept.lower()
    # PERF: nearly all clients name none.
    return MEDIA_TYPE in accept and _weight(accept, MEDIA_TYPE) > _weight(accept, Frames.MEDIA_TYPE)


def _weight(accept: str, media_type: str) -> float:
    """The weight with which a client names a media type; 0 if it does not."""
    for wish in accept.split(","):
        name, _, parameters = wish.partition(";")
        if name.strip() == media_type:
            weight = _QUALITY.search(parameters)
            return 1.0 if weight is None else float(weight[1])
    return 0.0


class LastEvent(NamedTuple):
    """The id of the last event that a client has received."""

    cursors: Sequence[Mapping[str, Any]] = ()
    """Cursors with `partition` and `offset` each, of a subscription with `event_type` too."""
    created_at: str = ""
    """Creation time of the event type of a low-level stream; empty if the id does not contain it."""
    stream_id: str = ""
    """The stream of a subscription that wrote the id; empty if the id does not name it."""
    proof: str = ""
    """Shows that the client was sent the id; see `Resumption`."""
    resume: str = ""
    """Shows that the client was sent the id, for the ticket that has opened the stream; see `StreamTickets`."""


def last_event(req: falcon.Request) -> LastEvent:
    """The event after which a client resumes.

    Raises:
        Malformed: the client sends an id that no stream has written.
    """
    text = req.get_header(LAST_EVENT_ID)
    if not text or not wants_events(req):
        return LastEvent()
    try:
        items = orjson.loads(text)
        if isinstance(items, list):
            origin = items.pop(0) if items and "proof" in items[0] else {}
            created_at = items[0].get("created_at", "") if items else ""
            named = [created_at, *(origin.get(name, "") for name in ("stream_id", "proof", "resume"))]
            texts = [each[name] for each in items for name in ("partition", "offset")]
            if all(isinstance(each, str) for each in (*texts, *named)):
                return LastEvent(items, *named)
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        pass
    raise Malformed(f"{LAST_EVENT_ID} is not the id of an event of such a stream")


def sends_refusal(req: falcon.Request, resp: falcon.Response, error: RioniError, problem: bytes) -> bool:
    """Send a refusal that passes as an event, to a client that would stop otherwise; return whether it was sent.

    Args:
        req: the request for a stream.
        resp: the response to complete.
        error: the reason for the refusal.
        problem: the error as JSON.
    """
    if not (isinstance(error, PASSING) and req.method == "GET" and req.path.endswith("/events") and wants_events(req)):
        return False
    retry_ms = 1_000 * (error.retry_after_s or RETRY_REFUSED_S)
    resp.status = falcon.HTTP_200
    resume = "" if req.get_header(LAST_EVENT_ID) else caller_of(req).resume()
    # The ticket is spent: without an id the browser could not reconnect with it.
    spent = b"id: %b\n" % orjson.dumps([{"proof": "", "resume": resume}]) if resume else b""
    resp.data = b"retry: %d\n%bevent: problem\ndata: %b\n\n" % (retry_ms, spent, problem)
    set_headers(resp)
    return True


def set_headers(resp: falcon.Response) -> None:
    """Set the headers of an answer with server-sent events."""
    resp.content_type = MEDIA_TYPE
    resp.cache_control = ["no-store"]
    # nginx holds answers back otherwise.
    resp.set_header("X-Accel-Buffering", "no")


class ServerSentEvents:
    """Writes the batches of one stream as server-sent events."""

    MEDIA_TYPE: ClassVar[str] = MEDIA_TYPE

    def __init__(
        self,
        token: Callable[[], str] | None = None,
        *,
        places: Mapping[EventTypePartition, TimelinePosition] | None = None,
        created_at: str = "",
        stream_id: str = "",
        proof: str = "",
        resume: Callable[[], str] | None = None,
    ) -> None:
        """Begin.

        Args:
            token: makes the cursor tokens of a subscription's stream; None for a low-level stream.
            places: for a low-level stream, the place at which it begins to read each partition.
            created_at: for a low-level stream, the creation time of its event type: ids of another one of its name are
                invalid.
            stream_id: for a subscription's stream; sent in a separate event, since scripts see no headers.
            proof: goes into ids, for a client that resumes; empty if nothing can be proven.
            resume: makes a new proof for each id of a stream that a ticket has opened; None for other streams.
        """
        self._lines = Frames(token)
        self._low_level = token is None
        self._places = dict(places or {})
        self._created_at = {"created_at": created_at} if created_at else {}
        self._stream_id = stream_id
        named = {"stream_id": stream_id} if stream_id else {}
        self._origin = [{**named, "proof": proof}] if proof or resume else []
        self._resume = resume

    def begin(self) -> bytes:
        """The time after which to reconnect, and an id, so that a break before the first event loses nothing."""
        beginning = b"retry: %d\n%b" % (RETRY_MS, self._id())
        if self._stream_id:
            beginning += b"event: stream\ndata: %b\n" % orjson.dumps({"stream_id": self._stream_id})
        return beginning + b"\n"

    def write(self, send: Send) -> list[bytes]:
        """The event of a batch; a keep-alive is a comment with an id, which makes no event in a browser."""
        delivers = bool(send.slices or send.left_out)
        # Events reported as left out are not counted again after a reconnect.
        if self._low_level:
            self._places[send.partition] = send.place
        elif delivers:
            # In this order, so that the newest ones stay if there is no room for all.
            self._places.pop(send.partition, None)
            self._places[send.partition] = send.place
        if not delivers and not send.info:
            return [b": keep-alive\n%b\n" % self._id()]
        return [self._id(), b"data: ", *self._lines.write(send), b"\n"]

    def _id(self) -> bytes:
        encoded = self._encoded()
        while len(encoded) > ID_BYTES_MAX and not self._low_level and self._places:
            # Events that are not committed by a reconnect are delivered again.
            del self._places[next(iter(self._places))]
            encoded = self._encoded()
        return b"id: %b\n" % encoded

    def _encoded(self) -> bytes:
        if self._resume:
            self._origin[0]["resume"] = self._resume()
        cursors = [self._cursor(*item) for item in self._places.items()]
        if cursors:
            cursors[0] |= self._created_at
        return orjson.dumps([*self._origin, *cursors])

    def _cursor(self, key: EventTypePartition, place: TimelinePosition) -> dict[str, str]:
        cursor = {"partition": key.partition, "offset": place.offset}
        return cursor if self._low_level else cursor | {"event_type": key.event_type}
