"""Bounds the memory of answers that clients have not read yet, by client and by worker process."""

import threading  # threads: greenlets only: waits have deadlines
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import falcon

from rioni.domain.access.addresses import address_key
from rioni.domain.errors import Overloaded, RioniError, TooManyStreams
from rioni.http.problems import on_rioni_error


WORKER_BYTES_MAX, CLIENT_BYTES_MAX = 200_000_000, 50_000_000
COUNTED_BYTES_MIN = 65_536
"""The kernel takes smaller answers at once."""
SENT_BYTES = 65_536
"""How many bytes of an answer go to the socket at once: the time limit for slow clients applies to each part."""
WAIT_S = 5.0
RETRY_AFTER_S = 5
_HELD = "rioni.answer"
"""The member of a WSGI environment that has the reservation of an answer."""

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class AnswerBudget:
    """The bytes of all answers of a worker that are made or sent now.

    A client that has unread answers may have as many bytes as leave the same number for others, as with bodies.
    """

    def __init__(self, worker_bytes_max: int = WORKER_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        self._worker_bytes_max, self._client_bytes_max = worker_bytes_max, client_bytes_max
        self._total = 0
        self._of_clients: defaultdict[str, int] = defaultdict(int)
        self._released = threading.Condition()
        self._waiting = 0

    @property
    def held(self) -> int:
        """Bytes of all answers."""
        return self._total

    def reserve(self, client: str, size: int, *, wait_s: float = 0.0) -> "Reservation":
        """Count bytes of an answer; may wait until others have been read.

        Args:
            client: the key of the client that will read them.
            size: how many.
            wait_s: time limit of waiting.

        Raises:
            TooManyAnswers: the client has too many unread bytes.
            Overloaded: all clients together have.
        """
        until_s = time.monotonic() + wait_s
        while (refusal := self._refusal(client, size)) is not None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise refusal
            with self._released:
                self._waiting += 1
                try:
                    self._released.wait(left_s)
                finally:
                    self._waiting -= 1
        return self.take(client, size)

    def take(self, client: str, size: int) -> "Reservation":
        """Count bytes of an answer, whatever the limits: the answer describes work that has been done already."""
        self._total += size
        self._of_clients[client] += size
        return Reservation(self, client, size)

    def release(self, client: str, size: int) -> None:
        """Stop counting bytes."""
        self._total -= size
        if not (left := self._of_clients[client] - size):
            del self._of_clients[client]
        else:
            self._of_clients[client] = left
        if self._waiting:
            with self._released:
                self._released.notify_all()

    def _refusal(self, client: str, size: int) -> RioniError | None:
        # A client that has nothing unread gets an answer of any size: otherwise there would be no way to it.
        of_client, free = self._of_clients.get(client, 0), self._worker_bytes_max - self._total
        if of_client and of_client + size > (share := min(self._client_bytes_max, max(0, free))):
            return TooManyAnswers(of_client, share)
        if self._total and self._total + size > self._worker_bytes_max:
            return Overloaded(
                f"This process holds {self._total} bytes of answers that clients have not read, of at most "
                f"{self._worker_bytes_max}. Try again later.",
                RETRY_AFTER_S,
            )
        return None


class Reservation:
    """Bytes of one answer; they count until `release`, or until nothing refers to this any more."""

    __slots__ = ("_budget", "_client", "_size")

    def __init__(self, budget: AnswerBudget, client: str, size: int) -> None:
        self._budget, self._client, self._size = budget, client, size

    def release(self) -> None:
        """Stop counting the bytes; no-op if that was done before."""
        size, self._size = self._size, 0
        if size:
            self._budget.release(self._client, size)

    __del__ = release


class TooManyAnswers(TooManyStreams):
    """A client does not read its answers."""

    retry_after_s = RETRY_AFTER_S

    def __init__(self, held: int, bytes_max: int) -> None:
        super().__init__(
            f"This process holds {held} bytes of answers that this client has not read, of at most {bytes_max} now. "
            "Read them first, and ask for less at a time."
        )


def hold_answer(
    req: falcon.Request, resp: falcon.Response, budget: AnswerBudget, client: Callable[[falcon.Request], str]
) -> None:
    """Count the body of an answer, which is in memory, until it is sent; in its place a problem if that is too much.

    Answers to requests that change something are never refused: they were obeyed. Those that are the same for all are
    in memory once.
    """
    size = len(resp.data or resp.text or "")
    if size < COUNTED_BYTES_MIN or getattr(req.context, "answers_all", False):
        return
    if req.method not in ("GET", "HEAD"):
        req.env[_HELD] = budget.take(client(req), size)
        return
    try:
        req.env[_HELD] = budget.reserve(client(req), size)
    except RioniError as ex:
        resp.text = None
        for name in ("ETag", "Content-Encoding"):
            resp.delete_header(name)
        on_rioni_error(req, resp, ex, {})


class PageBudget:
    """Middleware that counts large pages of the console for the address of the browser: the user only the API knows."""

    def __init__(self, budget: AnswerBudget) -> None:
        self._budget = budget

    def process_response(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        _resource: Any,
        _req_succeeded: bool,  # noqa: FBT001 - Falcon passes it by position
    ) -> None:
        """Count it until it is sent."""
        if resp.stream is None:
            hold_answer(req, resp, self._budget, lambda req: address_key(req.remote_addr))


def released_when_sent(app: Wsgi) -> Wsgi:
    """A WSGI application whose large answers are sent in pieces, and count until they are sent."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        body = app(environ, start_response)
        held: Reservation | None = environ.pop(_HELD, None)
        return body if held is None else _Sent(body, held)

    return application


def slices(data: bytes) -> Iterator[bytes]:
    """Yield data in pieces for the socket."""
    view = memoryview(data)
    for start in range(0, len(view), SENT_BYTES):
        yield bytes(view[start : start + SENT_BYTES])


class _Sent:
    """The body of an answer in pieces."""

    def __init__(self, body: Iterable[bytes], held: Reservation) -> None:
        self._body, self._held = body, held

    def __iter__(self) -> Iterator[bytes]:
        for part in self._body:
            yield from slices(part)

    def close(self) -> None:
        """Stop counting it."""
        self._held.release()
        if (close := getattr(self._body, "close", None)) is not None:
            close()
