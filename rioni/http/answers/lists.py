"""Sends lists in pieces: what a client does not read is not made, so that a list of any length takes little memory."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Self, TypeVar

import falcon

from rioni.http.answers.answer_budget import WAIT_S, AnswerBudget, Reservation, slices
from rioni.http.answers.compression import GzipStream, accepts_gzip
from rioni.http.caller import client_key
from rioni.projections.queries.pieces import PIECE_BYTES


K = TypeVar("K")

Read = Callable[[Sequence[K]], tuple[Sequence[bytes], int]]
"""From the keys that are left to the first items, and how many keys that were."""
HELD_BYTES = 2 * PIECE_BYTES
"""Of a list that is sent in pieces: the piece, and what is made of it."""


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
    """Answer with a list: at once where it is short, otherwise in pieces, which are read as the client takes them.

    Args:
        req: of the client.
        resp: gets the body.
        budget: of this worker; may make the request wait.
        keys: of all items.
        read: reads items; it may block. Items that are gone by then are left out.
        head: what comes before the first item.
        tail: what comes behind the last one; called when it is known.

    Returns:
        Whether all of it is in `resp.data`.

    Raises:
        TooManyAnswers, Overloaded: of the budget, when waiting took too long.
    """
    held = budget.reserve(client_key(req), HELD_BYTES, wait_s=WAIT_S)
    items, done = read(keys) if keys else ((), 0)
    if done >= len(keys):
        held.release()
        resp.data = head + b",".join(items) + tail()
        return True
    resp.content_type = falcon.MEDIA_JSON
    resp.stream = _ListInPieces(head + b",".join(items), keys[done:], read, tail, held)
    if accepts_gzip(req):
        resp.set_header("Content-Encoding", "gzip")
        resp.stream = GzipStream(resp.stream)
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
