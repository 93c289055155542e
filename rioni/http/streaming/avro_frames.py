"""Writes batches in Avro, for clients that ask for them (reference streams#parameters).

A batch is one message in Avro's single-object encoding. As in Nakadi, messages follow each other with nothing between
them, so a client finds the end of one by decoding it. A client that asks for it gets each message behind its length:
four bytes, the most significant first.
"""

import time
from collections.abc import Callable, Iterator
from typing import ClassVar

from rioni.domain.avro.batches import MEDIA_TYPE
from rioni.domain.avro.consumption import StoredEvent, write_batch, write_block
from rioni.domain.ports.event_store import Chunk
from rioni.domain.streaming.messages import Send
from rioni.http.streaming.json_frames import Frames


LENGTH_BYTES = 4
EVENTS_AT_ONCE = 200
"""PERF: encoding so many takes about a millisecond; then other greenlets may run."""


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
    """Writes each batch behind its length."""

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
