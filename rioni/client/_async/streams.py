"""Reads the batches of a stream, one after the other, from the bytes of an answer."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from rioni.client.errors import UnexpectedAnswer
from rioni.wire.events import Batch


if TYPE_CHECKING:
    import httpx


BATCH_BYTES_MAX = 500_000_000
"""The most bytes of a line: more than any broker sends."""

_DECODER = msgspec.json.Decoder(Batch)


async def read_batches(response: "httpx.Response") -> AsyncIterator[Batch]:
    """The batches of a stream, each as soon as it has come; blocks until then.

    Raises:
        UnexpectedAnswer: this is not a stream of batches.
        httpx.TransportError: the connection broke.
    """
    # PERF: lines are copied once, when their pieces are joined; copying takes as long as finding the ends of events.
    pieces: list[memoryview] = []
    size = 0
    async for data in response.aiter_bytes():
        view, begin = memoryview(data), 0
        while (end := data.find(b"\n", begin)) >= 0:
            line = b"".join([*pieces, view[begin:end]])
            pieces.clear()
            size, begin = 0, end + 1
            if line and not line.isspace():
                yield _decode(line)
        if begin < len(data):
            pieces.append(view[begin:])
            size += len(data) - begin
            if size > BATCH_BYTES_MAX:
                raise UnexpectedAnswer(f"The stream sent a line of more than {BATCH_BYTES_MAX:,} bytes.")


def _decode(line: bytes) -> Batch:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as ex:
        raise UnexpectedAnswer(f"The stream sent something that is not a batch ({ex}): {line[:100]!r}") from ex
