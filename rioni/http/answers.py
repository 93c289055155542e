"""How answers are sent: compressed if the client accepts it (reference common#content-types), and lists in pieces."""

import gzip
import time
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Self, TypeVar

import falcon

from rioni.domain.breaths import BREATH_S, TURN_S
from rioni.http.answer_budget import WAIT_S, AnswerBudget, Reservation, slices
from rioni.http.caller import client_key
from rioni.projections.queries.past import PIECE_BYTES


# --- Gzip for answers and streams, if the client accepts it (reference common#content-types, common#flow-id) ---

ANSWER_BYTES_MIN = 256
"""Smaller answers are not compressed: they would not shrink."""
STEP_BYTES = 100_000
"""PERF: this many bytes take 1 ms, and 5 ms if hardly anything is repeated."""
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
        """The rest of a piece that takes long to compress."""
        self._deflate = zlib.compressobj(LEVEL, wbits=zlib.MAX_WBITS | 16)
        self._ended = False
        self._worked_s = 0.0
        """Working time since others ran, without waiting: pieces that come now and then are not delayed."""

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


def send_stream(req: falcon.Request, resp: falcon.Response, stream: Iterator[bytes]) -> None:
    """Make a stream the body of an answer; compressed, if the client accepts that."""
    resp.stream = stream
    if accepts_gzip(req):
        resp.set_header("Content-Encoding", "gzip")
        resp.stream = GzipStream(stream)


def _parts(coding: str) -> tuple[str, str, str]:
    return coding.partition(";")


# Sends lists in pieces: they are made only as a client reads them, so that a list of any length takes little memory.

K = TypeVar("K")

Read = Callable[[Sequence[K]], tuple[Sequence[bytes], int]]
"""Reads the first items of the keys that are left; returns them with their number of keys."""
HELD_BYTES = 2 * PIECE_BYTES
"""The memory of a list that is sent in pieces: the piece, and its rendered form."""


def answer_list(
    req: falcon.Request,
    resp: falcon.Response,
    budget: AnswerBudget,
    keys: Sequence[K],
    read: Read[K],
    *,
    head: bytes = b"[",
    tail: Callable[[], bytes] = lambda: b"]",
) -> bool:
    """Answer with a list: at once if it is short, otherwise in pieces, which are read as the client takes them.

    Args:
        req: the request of the client.
        resp: gets the body.
        budget: the budget of this worker; may make the request wait.
        keys: the keys of all items.
        read: reads items; it may block. Items that are gone by then are left out.
        head: the text before the first item.
        tail: returns the text after the last item; called when it is known.

    Returns:
        Whether all of it is in `resp.data`.

    Raises:
        TooManyAnswers, Overloaded: the budget raises them if waiting takes too long.
    """
    held = budget.reserve(client_key(req), HELD_BYTES, wait_s=WAIT_S)
    items, done = read(keys) if keys else ((), 0)
    if done >= len(keys):
        held.release()
        resp.data = head + b",".join(items) + tail()
        return True
    resp.content_type = falcon.MEDIA_JSON
    send_stream(req, resp, _ListInPieces(head + b",".join(items), keys[done:], read, tail, held))
    return False


class _ListInPieces:
    """The body of an answer; it runs in the greenlet of its request.

    A client that stops reading blocks the server's write between two pieces: no transaction is open and no thread is
    held then, and the deadline of the server's sockets ends it.
    """

    def __init__(
        self,
        begin: bytes,
        keys: Sequence[Any],
        read: Read[Any],
        tail: Callable[[], bytes],
        held: Reservation,
    ) -> None:
        self._pieces = _pieces(begin, keys, read, tail)
        self._held = held

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Read the next items."""
        return next(self._pieces)

    def close(self) -> None:
        """Read no further."""
        self._pieces.close()
        self._held.release()


def _pieces(begin: bytes, keys: Sequence[Any], read: Read[Any], tail: Callable[[], bytes]) -> Generator[bytes]:
    yield from slices(begin)
    comma = b"" if begin.endswith(b"[") else b","
    done = 0
    while done < len(keys):
        items, more = read(keys[done:])
        done += more
        if items:
            yield from slices(comma + b",".join(items))
            comma = b","
    yield tail()
