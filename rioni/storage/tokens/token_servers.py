"""How servers of tokens are asked: with a deadline and a size limit, not while they fail, and apart for each client."""

import contextlib
import http.client
import os
import socket
import ssl
import threading  # threads: locks for changes in memory, and a timer
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Generic, NamedTuple, ParamSpec, TypeVar
from urllib.parse import SplitResult, urlsplit

from rioni.domain.access.addresses import is_loopback
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import CLIENT, Clock


# --- Sends a single HTTP GET to a server chosen by the operator, with a deadline and a size limit ---
#
# The standard library's client suffices: answers are cached, so keeping connections open is not worthwhile. Under
# gevent, whose sockets and threads it uses, a request blocks only its caller.

DEADLINE_S = 2.0
ANSWER_BYTES_MAX = 262_144


class Response(NamedTuple):
    """The response of a server."""

    status: int
    body: bytes


Get = Callable[[str, Mapping[str, str]], Response]
"""`get(url, headers)` returns an answer or raises TokensUnavailable."""


def get(url: str, headers: Mapping[str, str]) -> Response:
    """GET a URL accepted by `why_unusable`; redirects are not followed.

    Blocks up to 2 s for connecting, and 2 s more for the complete answer.

    Raises:
        TokensUnavailable: the complete answer did not arrive in time, or it is too large.
    """
    parts = urlsplit(url)
    assert parts.hostname is not None
    try:
        with contextlib.closing(_connection(parts)) as connection:
            connection.connect()
            with _deadline(connection.sock) as late:
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("GET", target, headers={"Accept": "application/json", **headers})
                with connection.getresponse() as response:
                    body = response.read(ANSWER_BYTES_MAX + 1)
                    whole = not (late.is_set() or response.length)
    except (OSError, http.client.HTTPException, ValueError) as ex:
        # The error might quote the request; only its type is reported.
        raise TokensUnavailable(f"{parts.hostname} can't be asked about tokens: {type(ex).__name__}") from None
    if len(body) > ANSWER_BYTES_MAX:
        raise TokensUnavailable(f"{parts.hostname} answers with more than {ANSWER_BYTES_MAX} bytes")
    if not whole:
        raise TokensUnavailable(f"{parts.hostname} has not given a whole answer in time")
    return Response(response.status, body)


def why_unusable(url: str) -> str | None:
    """Return why tokens must not be sent to a URL; None if they may."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return "is not a URL that begins with https://"
    if parts.username is not None or parts.fragment:
        return "must have neither a user nor a fragment"
    if parts.scheme == "http" and not is_loopback(host):
        return "must begin with https:// unless it leads to this machine"
    return None


def _connection(parts: SplitResult) -> http.client.HTTPConnection:
    assert parts.hostname is not None
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=DEADLINE_S, context=_tls())
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=DEADLINE_S)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


@contextlib.contextmanager
def _deadline(connected: socket.socket) -> Iterator[threading.Event]:
    """Shut down a connection after a deadline; the client's own timeout restarts with every byte.

    Yields:
        Set once that has happened: the reader only sees the end of the stream.
    """
    late = threading.Event()
    # Uses a second descriptor, bypassing TLS, which stays valid even if the client closes the first.
    with socket.socket(fileno=os.dup(connected.fileno())) as twin:

        def cut() -> None:
            late.set()
            with contextlib.suppress(OSError):
                twin.shutdown(socket.SHUT_RDWR)

        alarm = threading.Timer(DEADLINE_S, cut)
        alarm.daemon = True
        alarm.start()
        try:
            yield late
        finally:
            alarm.cancel()


# --- Stops calls to unresponsive token servers for a while (circuit breaker) ---

P = ParamSpec("P")
T = TypeVar("T")

FAILURES_MAX = 5
PAUSE_S = 2.0


class CircuitBreaker:
    """Passes calls through until several in a row have failed; after a pause one call probes before all others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._closed_until_s = 0.0

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the function.

        Raises:
            TokensUnavailable: the function raised it, or the circuit is open.
        """
        with self._lock:
            now_s = self._clock.monotonic()
            if self._failures >= FAILURES_MAX:
                if now_s < self._closed_until_s:
                    raise TokensUnavailable("Tokens can't be checked at present")
                self._closed_until_s = now_s + PAUSE_S
        try:
            result = function(*args, **kwargs)
        except TokensUnavailable:
            with self._lock:
                self._failures += 1
                self._closed_until_s = self._clock.monotonic() + PAUSE_S
            raise
        with self._lock:
            self._failures = 0
        return result


# --- A separate object for each client: one client's use or failures do not affect the others ---

CLIENTS_MAX = 1_000
"""How many clients are remembered, the last seen ones; a client that returns later begins anew."""


class ByClient(Generic[T]):
    """Keeps a value for each client that requests come from; before it is authenticated, that is its address."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: OrderedDict[str, T] = OrderedDict()

    def __call__(self) -> T:
        """The value of the client that the current greenlet works for."""
        client = CLIENT.get()  # waits: a variable of the context
        with self._lock:
            if client in self._values:
                self._values.move_to_end(client)
            else:
                self._values[client] = self._make()
                if len(self._values) > CLIENTS_MAX:
                    self._values.popitem(last=False)
            return self._values[client]
