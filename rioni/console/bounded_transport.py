"""A transport for httpx whose answers come within a deadline and have a bounded size, whatever the server does."""

import contextlib
import ssl
import threading  # threads: a timer that ends a request
from collections.abc import Iterator
from functools import cache

import httpx


DEADLINE_S = 10.0
"""Seconds for connecting, the request and the whole answer. A time-out of httpx begins anew with each byte."""
ANSWER_BYTES_MAX = 262_144


@cache
def _tls() -> ssl.SSLContext:
    """PERF: reading the certificates takes 50 ms, in which nothing else runs; anybody may begin a login."""
    return httpx.create_ssl_context()


class BoundedTransport(httpx.HTTPTransport):
    """A transport for the requests of one client, which are made one after the other."""

    def __init__(self) -> None:
        super().__init__(verify=_tls())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; blocks until the beginning of the answer has arrived.

        Raises:
            httpx.TransportError: the answer is late, too large or compressed, also while it is read later.
        """
        # A small compressed answer could become a large one.
        request.headers["Accept-Encoding"] = "identity"
        alarm = _Alarm(self)
        try:
            with alarm.as_timeout():
                response = super().handle_request(request)
        except BaseException:
            alarm.cancel()
            raise
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Bounded(response.stream, alarm, compressed="content-encoding" in response.headers)
        return response


class _Alarm:
    """Closes the connection of a transport at the deadline: nothing else ends what waits for its next byte."""

    def __init__(self, transport: httpx.HTTPTransport) -> None:
        self._late = threading.Event()
        self._transport = transport
        self._timer = threading.Timer(DEADLINE_S, self._cut)
        self._timer.daemon = True
        self._timer.start()
        self.cancel = self._timer.cancel

    def _cut(self) -> None:
        self._late.set()
        self._transport.close()

    @contextlib.contextmanager
    def as_timeout(self) -> Iterator[None]:
        """Raises httpx.ReadTimeout instead of the error of a connection that was closed at the deadline."""
        try:
            yield
        except httpx.TransportError as ex:
            if self._late.is_set():
                raise httpx.ReadTimeout(f"no whole answer within {DEADLINE_S:.0f} s") from ex
            raise


class _Bounded(httpx.SyncByteStream):
    """The body of an answer."""

    def __init__(self, stream: httpx.SyncByteStream, alarm: _Alarm, *, compressed: bool) -> None:
        self._stream, self._alarm, self._compressed = stream, alarm, compressed

    def __iter__(self) -> Iterator[bytes]:
        if self._compressed:
            raise httpx.ReadError("the answer is compressed, which was not asked for")
        size = 0
        with self._alarm.as_timeout():
            for piece in self._stream:
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    raise httpx.ReadError(f"the answer has more than {ANSWER_BYTES_MAX:,} bytes")
                yield piece

    def close(self) -> None:
        self._alarm.cancel()
        self._stream.close()
