"""Writes batches as server-sent events, so that a browser can consume with nothing but `EventSource`.

An event's data is the batch as JSON, its id the cursors of all partitions of the stream. A browser that has lost its
connection sends the last id back, in `Last-Event-ID`: a low-level stream goes on behind these cursors, that of a
subscription commits them first. See https://html.spec.whatwg.org/multipage/server-sent-events.html.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import falcon
import orjson

from rioni.domain.errors import Malformed
from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.http.streaming.json_frames import Frames


MEDIA_TYPE = "text/event-stream"
LAST_EVENT_ID = "Last-Event-ID"
RETRY_MS = 1_000
"""After which time a browser connects again."""


def wants_events(req: falcon.Request) -> bool:
    """Whether a client reads server-sent events, which it has to name."""
    return any(wish.partition(";")[0].strip().lower() == MEDIA_TYPE for wish in req.accept.split(","))


def last_cursors(req: falcon.Request) -> Sequence[Mapping[str, Any]]:
    """The cursors after which a subscription's client resumes, with `event_type`, `partition` and `offset` each.

    Raises:
        Malformed: the client sends an id that no stream has written.
    """
    text = req.get_header(LAST_EVENT_ID)
    if not text or not wants_events(req):
        return ()
    try:
        cursors = orjson.loads(text)
        names = ("event_type", "partition", "offset")
        if isinstance(cursors, list) and all(isinstance(each[name], str) for each in cursors for name in names):
            return cursors
    except (orjson.JSONDecodeError, TypeError, KeyError):
        pass
    raise Malformed(f"{LAST_EVENT_ID} is not the id of an event of such a stream")


class ServerSentEvents:
    """Writes the batches of one stream as server-sent events."""

    MEDIA_TYPE: ClassVar[str] = MEDIA_TYPE

    def __init__(
        self,
        token: Callable[[], str] | None = None,
        *,
        places: Mapping[EventTypePartition, TimelinePosition] | None = None,
        stream_id: str = "",
    ) -> None:
        """Begin.

        Args:
            token: makes the cursor tokens of a subscription's stream; None for a low-level stream.
            places: for a low-level stream, where it begins to read each partition.
            stream_id: for a subscription's stream; sent in an event of its own, since scripts see no headers.
        """
        self._lines = Frames(token)
        self._names_event_type = token is not None
        self._places = dict(places or {})
        self._beginning = b"retry: %d\n\n" % RETRY_MS
        if stream_id:
            self._beginning += b"event: stream\ndata: %b\n\n" % orjson.dumps({"stream_id": stream_id})

    def write(self, send: Send) -> bytes:
        """The event of a batch; a keep-alive is a comment, which a browser skips."""
        beginning, self._beginning = self._beginning, b""
        if send.slices or send.left_out:
            # What was said to be left out is not counted again after a reconnect.
            self._places[send.partition] = send.place
        elif not send.info:
            return beginning + b": keep-alive\n\n"
        cursors = [self._cursor(*item) for item in self._places.items()]
        last = b"id: %b\n" % orjson.dumps(cursors) if cursors else b""
        return b"%b%bdata: %b\n" % (beginning, last, self._lines.write(send))

    def _cursor(self, key: EventTypePartition, place: TimelinePosition) -> dict[str, str]:
        cursor = {"partition": key.partition, "offset": place.offset}
        return cursor | {"event_type": key.event_type} if self._names_event_type else cursor
