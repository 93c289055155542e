"""Reads the batches of a stream, one after the other, from the bytes of an answer."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import msgspec

from rioni.client.errors import UnexpectedAnswer
from rioni.client.models.events import Batch


if TYPE_CHECKING:
    import httpx


BATCH_BYTES_MAX = 500_000_000
"""More than any broker sends in a line."""

_DECODER = msgspec.json.Decoder(Batch)


async def read_batches(response: "httpx.Response") -> AsyncIterator[Batch]:
    """The batches of a stream, each as soon as it has come; blocks until then.

    Raises:
        UnexpectedAnswer: this is not a stream of batches.
        httpx.TransportError: the connection broke.
    """
    pieces: list[bytes] = []
    size = 0
    async for data in response.aiter_bytes():
        *lines, rest = data.split(b"\n")
        for line in lines:
            if pieces:
                pieces.append(line)
                line = b"".join(pieces)  # noqa: PLW2901 - it is this line, completed
                pieces.clear()
                size = 0
            if line.strip():
                yield _decode(line)
        if rest:
            pieces.append(rest)
            size += len(rest)
            if size > BATCH_BYTES_MAX:
                raise UnexpectedAnswer(f"The stream sent a line of more than {BATCH_BYTES_MAX:,} bytes.")


def _decode(line: bytes) -> Batch:
    try:
        return _DECODER.decode(line)
    except msgspec.MsgspecError as ex:
        raise UnexpectedAnswer(f"The stream sent something that is not a batch ({ex}): {line[:100]!r}") from ex
