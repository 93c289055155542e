"""Reads request bodies, within bounds of size, time and memory.

Received bytes of a body count, inflated, from their arrival until the request is answered; so a slow client is charged
for what it has sent, not for the length that it announces.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO

import falcon
from gunicorn.http.errors import ParseException

from rioni.domain.errors import Malformed, Overloaded, RequestTimeout, TooLarge, TooManyStreams
from rioni.http.bodies.inflation import Inflater
from rioni.http.caller import caller_of


WORKER_BYTES_MAX, CLIENT_BYTES_MAX = 200_000_000, 100_000_000
RETRY_AFTER_S = 1
LARGE_BYTES = 1_000_000
"""After bodies of this size memory is returned to the system."""
JSON_BYTES_MAX = 262_144
DEFINITION_BYTES_MAX = 2_000_000
"""Of an event type: a schema of the largest size fits, whatever way its characters are escaped."""

READ_BYTES = 65_536
STEP_BYTES = 1_000_000
"""Bytes after which other greenlets run."""
BREATH_S = 0.001
"""Sleeping for zero seconds would run ready greenlets only, and no expired timers."""


def read_json(req: falcon.Request, bytes_max: int = JSON_BYTES_MAX) -> bytes:
    """The body of a request that is no batch of events; raises as `read_body` does."""
    return read_body(req, bytes_max)


def read_body(req: falcon.Request, bytes_max: int) -> bytes:
    """The whole body, inflated if it is compressed.

    Raises:
        TooLarge: it is longer than `bytes_max`, before or after inflating; the rest is not read.
        RequestTimeout: it is received too slowly.
        Malformed: it is not in the form that Content-Encoding names.
        TooManyStreams, Overloaded: the client, or all of them, send too much at once.
    """
    if (req.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    encoding = (req.get_header("Content-Encoding") or "").lower()
    read = _pieces(req, bytes_max)
    if encoding and (bodies := getattr(req.context, "bodies", None)) is not None:
        read = bodies.inflater.inflated(read, encoding, partial(hold, req))
    body, size = BytesIO(), 0
    for piece in read:
        if size + len(piece) > bytes_max:
            raise _too_large(bytes_max)
        hold(req, len(piece))
        size += body.write(piece)
    # PERF: this copies nothing; copying 50 MB could block the process for 100 ms.
    return body.getvalue()


def _pieces(req: falcon.Request, bytes_max: int) -> Iterator[bytes]:
    # Falcon takes a body without a length for an empty one, although gunicorn knows where its chunks end.
    stream = req.env["wsgi.input"] if req.env.get("wsgi.input_terminated") else req.bounded_stream
    size = 0
    try:
        for piece in pieces(stream.read):
            # Counted as they come, too: compressed ones may inflate to nothing, and those without a length go on.
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            yield piece
    except TimeoutError as ex:
        raise RequestTimeout("Timed out reading the request body; send smaller or compressed batches") from ex
    except (OSError, ParseException) as ex:
        raise Malformed(f"The request body is truncated or malformed: {ex}") from ex


def _too_large(bytes_max: int) -> TooLarge:
    return TooLarge(f"The body is larger than {bytes_max} bytes; send less in one request")


def pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield the pieces that `read` returns until the end of the body; raises what it raises."""
    size, step_ends = 0, STEP_BYTES
    while piece := read(READ_BYTES):
        size += len(piece)
        yield piece
        if size > step_ends:
            step_ends = size + STEP_BYTES
            time.sleep(BREATH_S)


def hold(req: falcon.Request, size: int) -> None:
    """Count received bytes of a request's body; raises what `BodyBudget.reserve` raises."""
    context = req.context
    budget: BodyBudget | None = getattr(context, "bodies", None)
    if budget is not None:
        client, held = getattr(context, "held", None) or (_client(req), 0)
        budget.reserve(client, size)
        context.held = client, held + size


def let_go(req: falcon.Request) -> None:
    """Stop counting the bytes of a request: it has been answered."""
    if (held := getattr(req.context, "held", None)) is not None:
        req.context.bodies.release(*held)
        req.context.held = None


def _client(req: falcon.Request) -> str:
    """The client to charge: the authenticated subject, otherwise the network address."""
    subject = caller_of(req).subject
    return f"{subject.realm} {subject.name}" if subject.realm else req.remote_addr or "-"


class BodyBudget:
    """The bytes that all requests of a worker hold now."""

    def __init__(self, worker_bytes_max: int = WORKER_BYTES_MAX, client_bytes_max: int = CLIENT_BYTES_MAX) -> None:
        self._worker_bytes_max, self._client_bytes_max = worker_bytes_max, client_bytes_max
        self._total = 0
        self._of_clients: defaultdict[str, int] = defaultdict(int)
        self._released_large = False
        self.inflater = Inflater()

    def reserve(self, client: str, size: int) -> None:
        """Count more bytes of a client.

        Raises:
            Overloaded: the worker holds too many bytes of all clients.
            TooManyStreams: it holds too many of this one.
        """
        if self._total + size > self._worker_bytes_max:
            raise Overloaded(
                f"This process already holds {self._total} bytes of request bodies, of at most "
                f"{self._worker_bytes_max}; try again later",
                RETRY_AFTER_S,
            )
        if (held := self._of_clients[client]) + size > self._client_bytes_max:
            raise TooManyBytes(held, self._client_bytes_max)
        self._total += size
        self._of_clients[client] += size

    def release(self, client: str, size: int) -> None:
        """Stop counting bytes that were reserved."""
        self._total -= size
        left = self._of_clients[client] - size
        if left:
            self._of_clients[client] = left
        else:
            del self._of_clients[client]
        self._released_large = self._released_large or size >= LARGE_BYTES

    def has_released_large(self) -> bool:
        """Whether a request with a large body has ended since the last call."""
        released, self._released_large = self._released_large, False
        return released

    @property
    def held(self) -> int:
        """Bytes of all requests."""
        return self._total


class TooManyBytes(TooManyStreams):
    """The worker holds too many bytes of a client."""

    retry_after_s = RETRY_AFTER_S

    def __init__(self, held: int, bytes_max: int) -> None:
        super().__init__(
            f"This process already holds {held} bytes of request bodies of this client, of at most {bytes_max}; send "
            "less at a time"
        )
