"""Writes batches as lines of JSON, out of stored bytes that are never parsed.

Source: reference low-level-streams#json-batches, streams#json-batches.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol
from uuid import uuid4

import orjson

from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition


def random_token() -> str:
    """A cursor token: opaque, and another one for each batch."""
    return str(uuid4())


class FrameWriter(Protocol):
    """Writes the batches of one stream in one form."""

    MEDIA_TYPE: ClassVar[str]

    def begin(self) -> bytes:
        """The bytes in front of all batches, which the client gets at once."""

    def write(self, send: Send) -> Sequence[bytes]:
        """The bytes of a batch, in pieces: it may be as large as the memory of the stream."""


class Frames:
    """Writes the batches of one stream in JSON.

    PERF: what stays the same for a partition is made once; a batch costs as many steps as it has chunks.
    """

    __slots__ = ("_fixed", "_token")
    MEDIA_TYPE: ClassVar[str] = "application/x-json-stream"

    def __init__(self, token: Callable[[], str] | None = None) -> None:
        """Begin.

        Args:
            token: makes the cursor tokens of a subscription's stream; None for a low-level stream, whose cursors have
                neither token nor event type.
        """
        self._token = token
        self._fixed: dict[EventTypePartition, tuple[bytes, bytes]] = {}

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def write(self, send: Send) -> list[bytes]:
        """The line of a batch, line feed included, in pieces.

        PERF: they are the chunks as they are stored; joining those of 50 MB took 50 ms.
        """
        key, place, slices, info, left_out = send
        begin, middle = self._fixed.get(key) or self._fix(key)
        pieces = [begin, place.offset.encode(), middle]
        if self._token:
            pieces += (self._token().encode(), b'"}')
        if slices:
            pieces.append(b',"events":[')
            for _, chunk, start, stop in slices:
                pieces += (chunk.cut(start, stop), b",")
            pieces[-1] = b"]"
        if info or left_out:
            said = {"debug": info, "left_out": left_out}
            pieces += (b',"info":', orjson.dumps({name: value for name, value in said.items() if value}))
        pieces.append(b"}\n")
        return pieces

    def _fix(self, key: EventTypePartition) -> tuple[bytes, bytes]:
        begin = b'{"cursor":{"partition":%b,"offset":"' % orjson.dumps(key.partition)
        middle = b'"}'
        if self._token:
            middle = b'","event_type":%b,"cursor_token":"' % orjson.dumps(key.event_type)
        self._fixed[key] = begin, middle
        return begin, middle
