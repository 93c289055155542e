"""Request framing hardening against request smuggling, where gunicorn is lenient.

If a proxy in front finds other bounds than the broker, one client's bytes can be taken for another client's request.
"""

import re
from functools import partial
from typing import Any

from gunicorn.http.errors import InvalidHeader, ParseException
from gunicorn.http.message import Request

from rioni.domain.breaths import Breaths
from rioni.http.bodies.reading import READ_BYTES
from rioni.http.connection.known_heads import KnownHead, KnownHeads, head_of


HTTP_1_1 = (1, 1)
HEADERS_BYTES_MAX = 65_536
"""Of all headers together. PERF: reading them takes the square of their length, here up to 20 ms."""
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


class BoundedRequest(Request):  # type: ignore[misc]  # gunicorn has no types
    """A request whose headers are bounded in sum; gunicorn would allow the product of its two other limits."""

    known_head: KnownHead | None = None
    """What is remembered of its head, if anything."""
    _known_heads = KnownHeads()

    def parse(self, unreader: Any) -> Any:
        """Read the headers; raises LimitRequestHeaders, which gunicorn answers with 431."""
        self.max_buffer_headers = HEADERS_BYTES_MAX
        return super().parse(unreader)

    def _parse_python(self, unreader: Any, buf: bytearray) -> Any:
        """Parse what was received, or find that the same was parsed before; returns what follows the head."""
        head = head_of(buf)
        if head is not None and (known := self._known_heads.get(head)) is not None:
            self.known_head = known
            known.fill(self, head.values)
            return bytes(buf[head.length :])
        rest = super()._parse_python(unreader, buf)
        check_host(self)
        if head is not None and not self._expected_100_continue:
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
        """Whether the whole body was read, as its length says; False where it has none. PERF: saves a read."""
        return getattr(self._reader, "length", None) == 0

    def read(self, size: int) -> bytes:
        """Read at most `size` bytes; raises what gunicorn raises."""
        try:
            data: bytes = self._reader.read(size)
        except Exception:
            self._req.force_close()
            raise
        return data


def discard_rest(req: Any) -> bool:
    """Drain the body of a request that was answered before its end, so that the client gets the answer.

    Closing a connection of which something is unread resets it, and the client may lose what it has not read by then.

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
