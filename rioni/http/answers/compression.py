"""Gzip for answers and streams, if the client accepts it (reference common#content-types, common#flow-id)."""

import gzip
import time
import zlib
from collections import deque
from collections.abc import Iterator

import falcon

from rioni.domain.breaths import BREATH_S, TURN_S


ANSWER_BYTES_MIN = 256
"""Smaller answers are not compressed: they would not shrink."""
STEP_BYTES = 100_000
"""PERF: so much takes 1 ms, and 5 ms where hardly anything is repeated."""
LEVEL = 1
"""PERF: the cheapest level; on JSON events the best one saves a fifth more bytes for five times the time."""


def accepts_gzip(req: falcon.Request) -> bool:
    """Whether the client takes gzip: it is named, and not with a weight of zero."""
    codings = (req.get_header("Accept-Encoding") or "").lower().replace(" ", "").split(",")
    return any(name == "gzip" and weight not in ("q=0", "q=0.0") for name, _, weight in map(_parts, codings))


def compress_answer(req: falcon.Request, resp: falcon.Response) -> None:
    """Compress the body of an answer."""
    data = resp.data or (resp.text.encode() if resp.text else b"")
    if len(data) >= ANSWER_BYTES_MIN and accepts_gzip(req):
        resp.text = None
        resp.data = gzip.compress(data, LEVEL) if len(data) <= STEP_BYTES else _compressed(data)
        resp.set_header("Content-Encoding", "gzip")


def _compressed(data: bytes) -> bytes:
    """Compress a large answer, with pauses in which other greenlets run."""
    deflate = zlib.compressobj(LEVEL, wbits=zlib.MAX_WBITS | 16)
    pieces = []
    for start in range(0, len(data), STEP_BYTES):
        pieces.append(deflate.compress(data[start : start + STEP_BYTES]))
        time.sleep(BREATH_S)
    return b"".join((*pieces, deflate.flush()))


class GzipStream:
    """Compresses a stream; every piece can be read as soon as it arrives, because it ends with a sync flush.

    Other greenlets run when it has compressed for a turn: a client that reads quickly lets no write wait.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest: deque[bytes] = deque()
        """Of a piece that takes long to compress."""
        self._deflate = zlib.compressobj(LEVEL, wbits=zlib.MAX_WBITS | 16)
        self._ended = False
        self._worked_s = 0.0
        """Since others ran. Waiting for the next piece is no work: pieces that come now and then are not delayed."""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        try:
            piece = self._rest.popleft() if self._rest else next(self._pieces)
        except StopIteration:
            self._ended = True
            return self._deflate.flush()
        if len(piece) > STEP_BYTES:
            piece, *rest = (piece[start : start + STEP_BYTES] for start in range(0, len(piece), STEP_BYTES))
            self._rest.extend(rest)
        if not piece:
            return piece
        if self._worked_s > TURN_S:
            time.sleep(BREATH_S)
            self._worked_s = 0.0
        begin_s = time.monotonic()
        compressed = self._deflate.compress(piece) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._worked_s += time.monotonic() - begin_s
        return compressed

    def close(self) -> None:
        """Close the stream below."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()


def _parts(coding: str) -> tuple[str, str, str]:
    return coding.partition(";")
