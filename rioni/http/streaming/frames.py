"""Writes batches as lines of JSON, out of stored bytes that are never parsed, or in Avro."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol
from uuid import uuid4

import orjson

from rioni.domain.avro.binary import MEDIA_TYPE
from rioni.domain.avro.envelopes import StoredEvent, write_batch, write_block
from rioni.domain.ports.event_store import Chunk
from rioni.domain.streaming.messages import Send
from rioni.domain.timelines.position import EventTypePartition


# --- Writes batches as lines of JSON, out of stored bytes that are never parsed ---
#
# Source: reference low-level-streams#json-batches, streams#json-batches.


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

    PERF: the constant parts for a partition are made once; a batch costs as many steps as it has chunks.
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


# --- Writes batches in Avro, for clients that ask for them (reference streams#parameters) ---
#
# A batch is one message in Avro's single-object encoding. As in Nakadi, messages follow each other with nothing between
# them, so a client finds the end of one by decoding it. A client that asks for it gets each message after its length:
# four bytes, the most significant first.

LENGTH_BYTES = 4
EVENTS_AT_ONCE = 200
"""PERF: encoding this many events takes about a millisecond; then other greenlets may run."""


class AvroFrames:
    """Writes the batches of one stream in Avro."""

    MEDIA_TYPE: ClassVar[str] = Frames.MEDIA_TYPE
    """Nakadi names the JSON stream here too, and its clients expect that."""

    def __init__(self, token: Callable[[], str] | None = None) -> None:
        """Begin.

        Args:
            token: makes the cursor tokens of a subscription's stream; None for a low-level stream, where they are
                empty.
        """
        self._token = token

    def begin(self) -> bytes:
        """Nothing."""
        return b""

    def write(self, send: Send) -> list[bytes]:
        """The message of a batch."""
        cursor = {
            "partition": send.partition.partition,
            "offset": send.place.offset,
            "event_type": send.partition.event_type,
            "cursor_token": self._token() if self._token else "",
        }
        left_out = f"events left out, count: {send.left_out}" if send.left_out else ""
        return [write_batch(cursor, list(_blocks(send)), "; ".join(filter(None, (send.info, left_out))))]


class LengthPrefixedAvroFrames(AvroFrames):
    """Writes each batch after its length."""

    MEDIA_TYPE: ClassVar[str] = f"{MEDIA_TYPE}; framing=length"

    def write(self, send: Send) -> list[bytes]:
        """The message of a batch, its length in front."""
        pieces = super().write(send)
        return [sum(map(len, pieces)).to_bytes(LENGTH_BYTES, "big"), *pieces]


def _blocks(send: Send) -> Iterator[bytes]:
    for _, chunk, start, stop in send.slices:
        for first in range(start, stop, EVENTS_AT_ONCE):
            positions = range(first, min(stop, first + EVENTS_AT_ONCE))
            yield write_block([_stored(send.partition.event_type, chunk, position) for position in positions])
            time.sleep(0)


def _stored(event_type: str, chunk: Chunk, position: int) -> StoredEvent:
    datum = chunk.headers[position - chunk.first].avro if chunk.headers else None
    return StoredEvent(event_type, chunk.cut(position, position + 1), datum, chunk.recorded_at_ms)
