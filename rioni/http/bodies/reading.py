"""Reads and inflates request bodies, within bounds of size, time and memory.

Received bytes of a body count, inflated, from their arrival until the request is answered; so a slow client is charged
for what it has sent, not for the length that it announces. Bodies are inflated in steps; those of all requests run one
after the other, with pauses in which other greenlets run: however many compressed bodies come at once, the
worker stays responsive.
"""

import threading  # threads: greenlets only: a lock held for one step of some milliseconds
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO

import falcon
import zstandard
from gunicorn.http.errors import ParseException

from rioni.domain.breaths import BREATH_S, TURN_S, Breaths
from rioni.domain.errors import Malformed, Overloaded, RequestTimeout, TooLarge, TooManyStreams
from rioni.http.caller import client_key


WORKER_BYTES_MAX, CLIENT_BYTES_MAX = 200_000_000, 100_000_000
RETRY_AFTER_S = 1
LARGE_BYTES = 1_000_000
"""The size of bodies after which memory is returned to the system."""
JSON_BYTES_MAX = 262_144
DEFINITION_BYTES_MAX = 2_000_000
"""The limit for the body of an event type: a schema of the largest size fits, however its characters are escaped."""

READ_BYTES = 65_536
INFLATED_STEP_BYTES = 131_072
"""PERF: inflating this many bytes takes 1 ms; the steps of a turn are followed by a pause, in which other greenlets
run."""
TURN_WAIT_S = 30.0
"""Time limit of waiting for the steps of other requests."""
TURN_RETRY_AFTER_S = 5
RATIO_MAX, RATIO_BYTES_MIN = 200, 10_000_000
"""PERF: gzip makes a fiftieth of events that differ in an id and a time, and a thousandth of one byte repeated."""
GZIP_MEMBERS_MAX = 1_000
"""gzip allows several compressed parts in a row (RFC 1952, 2.2); tools make one, or one for each 64 kB."""
GZIP_BYTES = 40_000
"""Memory of the library for one body, in addition to the output."""
ZSTD_WINDOW_BYTES_MAX = 2**23
ZSTD_STEP_BYTES = 32
"""PERF: four bytes of Zstandard can become 128 kB, so these become 1 MB at most."""
_ZSTD_HEADER_BYTES_MAX = 18


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
    encoding = req.env.get("HTTP_CONTENT_ENCODING", "").lower()
    read = _pieces(req, bytes_max)
    if encoding and (bodies := getattr(req.context, "bodies", None)) is not None:
        read = bodies.inflater.inflated(read, encoding, partial(hold, req))
    body, size, breathe = BytesIO(), 0, Breaths()
    for piece in read:
        breathe()
        if size + len(piece) > bytes_max:
            raise _too_large(bytes_max)
        hold(req, len(piece))
        size += body.write(piece)
    # PERF: this copies nothing; copying 50 MB could block the process for 100 ms.
    return body.getvalue()


def _pieces(req: falcon.Request, bytes_max: int) -> Iterator[bytes]:
    # Falcon takes a body without a length for an empty one, although gunicorn knows where its chunks end.
    length = req.content_length
    if length is None:
        length = bytes_max + 1 if req.env.get("wsgi.input_terminated") else 0
    stream, size = req.env["wsgi.input"], 0
    try:
        # PERF: a read at the end of a body costs as much as the one that returns it.
        while size < length and (piece := stream.read(min(READ_BYTES, length - size))):
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


def hold(req: falcon.Request, size: int) -> None:
    """Count received bytes of a request's body; raises as `BodyBudget.reserve` does."""
    context = req.context
    budget: BodyBudget | None = getattr(context, "bodies", None)
    if budget is not None:
        client, held = getattr(context, "held", None) or (client_key(req), 0)
        budget.reserve(client, size)
        context.held = client, held + size


def let_go(req: falcon.Request) -> None:
    """Stop counting the bytes of a request: it has been answered."""
    if (held := getattr(req.context, "held", None)) is not None:
        req.context.bodies.release(*held)
        req.context.held = None


class BodyBudget:
    """The bytes that all requests of a worker hold now.

    A client may hold as much as is free (dynamic thresholds, Choudhury and Hahne 1998), and never more than its own
    limit: n clients that take all they can get, and finish nothing, leave a part of n + 1 for others.
    """

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
        free = self._worker_bytes_max - self._total
        if size > free:
            raise Overloaded(
                f"This process already holds {self._total} bytes of request bodies, of at most "
                f"{self._worker_bytes_max}; try again later",
                RETRY_AFTER_S,
            )
        held = self._of_clients.get(client, 0)
        if held + size > (share := min(self._client_bytes_max, free)):
            raise TooManyBytes(held, share)
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
            f"This process already holds {held} bytes of request bodies of this client, of at most {bytes_max} now; "
            "send less at a time"
        )


class Inflater:
    """Inflates the bodies of one worker process."""

    def __init__(self) -> None:
        # Held by greenlets, for one step and its break; nothing in between waits for a client.
        self._turn = threading.Lock()
        self._worked_s = 0.0
        """Time of steps since the last break."""

    def inflated(self, pieces: Iterator[bytes], coding: str, reserve: Callable[[int], None]) -> Iterator[bytes]:
        """Yield the pieces of a body without its content coding.

        Args:
            pieces: the pieces as received from the client.
            coding: the header `Content-Encoding`; other codings than gzip and zstd are ignored.
            reserve: called with the bytes of memory that inflating takes, before it does; may raise.

        Raises:
            Malformed: they are not in that coding.
            TooLarge: they are compressed by more than `RATIO_MAX`, or have more than `GZIP_MEMBERS_MAX` parts.
            Overloaded: too many bodies are inflated at a time.
        """
        if coding == "gzip":
            reserve(GZIP_BYTES)
            return self._gunzip(pieces)
        if coding == "zstd":
            return self._unzstd(pieces, reserve)
        return pieces

    def _gunzip(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        inflate, members = zlib.decompressobj(zlib.MAX_WBITS | 16), 1
        ratio = _Ratio()
        try:
            for piece in pieces:
                rest = piece
                ratio.received += len(piece)
                while rest:
                    # Bytes after the end of a gzip member are never given to its object, which would keep all of them.
                    if inflate.eof:
                        inflate, members = zlib.decompressobj(zlib.MAX_WBITS | 16), members + 1
                    if members > GZIP_MEMBERS_MAX:
                        raise TooLarge(f"The body has more than {GZIP_MEMBERS_MAX} gzip members; send it as one")
                    yield ratio.checked(self._step(inflate.decompress, rest, INFLATED_STEP_BYTES))
                    rest = inflate.unconsumed_tail or inflate.unused_data
        except zlib.error as ex:
            raise Malformed("Not in GZIP format") from ex
        if not inflate.eof:
            raise Malformed("Not in GZIP format")

    def _unzstd(self, pieces: Iterator[bytes], reserve: Callable[[int], None]) -> Iterator[bytes]:
        inflate = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()
        ratio = _Ratio()
        try:
            for piece in pieces:
                if not ratio.received:
                    reserve(_window_bytes(piece))
                ratio.received += len(piece)
                for start in range(0, len(piece), ZSTD_STEP_BYTES):
                    yield ratio.checked(self._step(inflate.decompress, piece[start : start + ZSTD_STEP_BYTES]))
        except zstandard.ZstdError as ex:
            raise Malformed("Not in ZSTD format") from ex
        if not inflate.eof:
            raise Malformed("Not in ZSTD format")

    def _step(self, decompress: Callable[..., bytes], *args: bytes | int) -> bytes:
        """Run one step, when it is this request's turn."""
        if not self._turn.acquire(timeout=TURN_WAIT_S):
            raise Overloaded("Too many compressed bodies are being read; try again later", TURN_RETRY_AFTER_S)
        try:
            begun_s = time.monotonic()
            inflated = decompress(*args)
            self._worked_s += time.monotonic() - begun_s
            if self._worked_s > TURN_S:
                time.sleep(BREATH_S)
                self._worked_s = 0.0
            return inflated
        finally:
            self._turn.release()


class _Ratio:
    """Checks the compression ratio of a body."""

    def __init__(self) -> None:
        self.received = self._inflated = 0

    def checked(self, piece: bytes) -> bytes:
        """Count inflated bytes; raises TooLarge if the ratio is above the limit."""
        self._inflated += len(piece)
        if self._inflated > RATIO_BYTES_MIN and self._inflated > RATIO_MAX * self.received:
            raise TooLarge(
                f"The inflated body is larger than {RATIO_MAX} times its compressed size; send less at a time, or not "
                "compressed"
            )
        return piece


def _window_bytes(beginning: bytes) -> int:
    """The memory that a Zstandard frame needs, from its header; the largest allowed if that is unknown."""
    if len(beginning) < _ZSTD_HEADER_BYTES_MAX:
        return ZSTD_WINDOW_BYTES_MAX
    try:
        return min(zstandard.get_frame_parameters(beginning).window_size, ZSTD_WINDOW_BYTES_MAX)
    except zstandard.ZstdError:
        return ZSTD_WINDOW_BYTES_MAX
