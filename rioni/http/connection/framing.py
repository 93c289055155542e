"""The heads of requests: hardened against request smuggling, and remembered, since clients repeat them."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from gunicorn.http import wsgi
from gunicorn.http.errors import InvalidHeader, ParseException

from rioni.domain.breaths import Breaths
from rioni.http.bodies.reading import READ_BYTES
from rioni.patches.gunicorn import HookedRequest


# --- PERF: remembers how gunicorn has parsed the heads of requests, since clients repeat them ---
#
# A head is the request line and the headers. The heads of a client mostly differ in the values of two headers at most;
# the rest is looked up byte by byte, so only what gunicorn has parsed and accepted before is found. Parsing the head
# and making its WSGI environment took a fifth of the time of a small request.

HEADS_MAX = 1_024
"""Heads that each worker remembers; further ones replace the oldest."""
HEAD_BYTES_MAX = 2_048
"""Longer heads are not remembered."""
END = b"\r\n\r\n"

_VARYING = re.compile(rb"\r\n((?i:content-length|x-flow-id)): ([!-~]{1,64})(?=\r\n)")
"""The headers whose values may differ, in the form that clients send. Headers in other forms belong to the parts that
must match."""
_VARIABLES = {"CONTENT-LENGTH": "CONTENT_LENGTH", "X-FLOW-ID": "HTTP_X_FLOW_ID"}
"""The headers whose values may differ, with their names in the WSGI environment."""
_OF_CONNECTION = {"wsgi.input", "wsgi.early_hints", "gunicorn.socket", "REMOTE_ADDR", "REMOTE_PORT"}
_PARSED = ("method", "uri", "path", "query", "fragment", "version")


class Head(NamedTuple):
    """The head of a request, as it was received."""

    fixed: tuple[bytes, ...]
    """The parts of a head that must match: everything but the varying values."""
    values: Sequence[str]
    """The varying values."""
    length: int
    """The length in bytes, with the empty line that ends the head."""


def head_of(received: bytearray) -> Head | None:
    """Take the head from the beginning of the received bytes; None if it is incomplete or too long."""
    end = received.find(END, 0, HEAD_BYTES_MAX)
    if end < 0:
        return None
    parts = _VARYING.split(received[: end + 2])
    values = [value.decode("ascii") for value in parts[2::3]]
    del parts[2::3]
    return Head(tuple(parts), values, end + len(END))


class KnownHead:
    """The attributes that gunicorn has parsed from a head, and the WSGI environment that it has made of it."""

    __slots__ = ("_environ", "_headers", "_parsed", "_places")

    def __init__(self, req: Any, values: Sequence[str]) -> None:
        """Keep a parsed request.

        Raises:
            ValueError: the varying headers can't be distinguished.
        """
        places = [(place, name) for place, (name, _) in enumerate(req.headers) if name in _VARIABLES]
        if [req.headers[place][1] for place, _ in places] != values or len({name for _, name in places}) < len(values):
            raise ValueError
        self._places, self._headers = places, req.headers.copy()
        self._parsed = {name: getattr(req, name) for name in _PARSED}
        self._environ: dict[str, Any] = {}

    def fill(self, req: Any, values: Sequence[str]) -> None:
        """Set the attributes that gunicorn's parser would set."""
        req.__dict__.update(self._parsed)
        req.headers = headers = self._headers.copy()
        for (place, name), value in zip(self._places, values, strict=True):
            headers[place] = name, value

    def environ(self, req: Any, sock: Any, client: Any) -> dict[str, Any]:
        """Return the WSGI environment of a request with this head; empty if there was none before."""
        environ = self._environ.copy()
        if environ:
            environ["wsgi.input"], environ["gunicorn.socket"] = req.body, sock
            environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client[0], str(client[1])
            for place, name in self._places:
                environ[_VARIABLES[name]] = req.headers[place][1]
        return environ

    def keep(self, environ: dict[str, Any]) -> None:
        """Keep the environment of a request with this head."""
        self._environ = {name: value for name, value in environ.items() if name not in _OF_CONNECTION}


class KnownHeads:
    """The heads that this worker has met last."""

    def __init__(self) -> None:
        self._heads: dict[tuple[bytes, ...], KnownHead] = {}

    def get(self, head: Head) -> KnownHead | None:
        """Return the known head that matches a head."""
        return self._heads.get(head.fixed)

    def add(self, head: Head, req: Any) -> KnownHead | None:
        """Remember a head that gunicorn has just parsed, if the same answer would be right for any other values."""
        try:
            known = KnownHead(req, head.values)
        except ValueError:
            return None
        if len(self._heads) >= HEADS_MAX:
            del self._heads[next(iter(self._heads))]
        self._heads[head.fixed] = known
        return known


_create = wsgi.create


def create(req: Any, sock: Any, client: Any, server: Any, cfg: Any) -> tuple[Any, dict[str, Any]]:
    """Make the response and the WSGI environment of a request; replaces `gunicorn.http.wsgi.create`."""
    known = req.known_head
    if known is not None and (environ := known.environ(req, sock, client)):
        return wsgi.Response(req, sock, cfg), environ
    response, environ = _create(req, sock, client, server, cfg)
    if known is not None:
        known.keep(environ)
    return response, environ


# --- Request framing hardening against request smuggling, where gunicorn is lenient ---
#
# If a proxy in front finds other bounds than the broker, one client's bytes can be taken for another client's request.

HTTP_1_1 = (1, 1)
HEADERS_BYTES_MAX = 65_536
"""The limit for all headers together. PERF: reading them takes the square of their length, here up to 20 ms."""
REST_BYTES_MAX = 200_000_000
"""Limit of draining a body that is not wanted: more than any accepted body."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(:[0-9]*)?", re.ASCII)


def check_host(req: Any) -> None:
    """Reject a request without a valid Host header (RFC 9112, chapter 3.2).

    Raises:
        InvalidHeader: gunicorn answers 400 and closes the connection.
    """
    hosts = [value for name, value in req.headers if name == "HOST"]
    # PERF: 0.4 µs.
    if (not hosts and req.version >= HTTP_1_1) or not all(map(_HOST.fullmatch, hosts)):
        raise InvalidHeader("HOST", req=req)


class BoundedRequest(HookedRequest):
    """A request whose headers are bounded in sum; gunicorn would allow the product of its two other limits."""

    known_head: KnownHead | None = None
    """The known head that matches this request's, if any."""
    _known_heads = KnownHeads()

    def parse(self, unreader: Any) -> Any:
        """Read the headers; raises LimitRequestHeaders, which gunicorn answers with 431."""
        self.max_buffer_headers = HEADERS_BYTES_MAX
        return super().parse(unreader)

    def parse_head(self, unreader: Any, received: bytearray) -> Any:
        """Parse the received bytes, or reuse the result for an equal head; returns the bytes after the head."""
        head = head_of(received)
        if head is not None and (known := self._known_heads.get(head)) is not None:
            self.known_head = known
            known.fill(self, head.values)
            return bytes(received[head.length :])
        rest = super().parse_head(unreader, received)
        check_host(self)
        if head is not None and all(name != "EXPECT" for name, _ in self.headers):
            self.known_head = self._known_heads.add(head, self)
        return rest


class ClosingReader:
    """Reads the body of a request; if that fails the connection is out of sync, and the response closes it.

    gunicorn closes the connection by itself then, but after an answer that promises keep-alive.
    """

    def __init__(self, req: Any) -> None:
        self._req, self._reader = req, req.body.reader

    @property
    def at_end(self) -> bool:
        """Whether the whole body was read, by its declared length; False if it has none. PERF: saves a read."""
        return getattr(self._reader, "length", None) == 0

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; raises as gunicorn does."""
        try:
            data: bytes = self._reader.read(size)
        except Exception:
            self._req.force_close()
            raise
        return data


def discard_rest(req: Any) -> bool:
    """Drain the body of a request that was answered before its end, so that the client gets the answer.

    Closing a connection with unread data resets it, and the client may lose the part of the answer that it has not
    read.

    Returns:
        Whether the next request can follow. It can't if reading failed, or the body goes on for more than
        `REST_BYTES_MAX`.
    """
    if req.body.failed:
        return False
    if req.body.reader.at_end:
        return True
    rest_bytes, breathe = 0, Breaths()
    try:
        for piece in iter(partial(req.body.reader.read, READ_BYTES), b""):
            breathe()
            rest_bytes += len(piece)
            if rest_bytes > REST_BYTES_MAX:
                return False
    except (OSError, ParseException):
        return False
    return True
