"""How servers of tokens are asked: with a deadline, not while they fail, apart for each client; token info services."""

import contextlib
import hashlib
import http.client
import os
import socket
import ssl
import threading  # threads: locks for changes in memory, and a timer
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar
from urllib.parse import SplitResult, urlsplit

import orjson
import structlog

from rioni.config.logs import FailureLog
from rioni.domain.access.addresses import is_loopback
from rioni.domain.access.authorization import TokenInfo, is_realm, is_uid, scopes_of
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


# --- Looks up tokens at OAuth 2 token info services (reference common#modes) ---

OK = 200
REFUSED = frozenset((400, 401, 403, 413, 414, 422, 431))
"""Status codes for an invalid token, one that is too long for the service among them."""
ERRORS = 500
"""Status codes from here on mean that the service does not work."""
KNOWN_MAX = 10_000

_failures = FailureLog(structlog.get_logger("rioni.tokens"))

_NOT_ASKED = "tokens can't be looked up"


class TokenInfoService:
    """A token info service at one URL."""

    def __init__(self, url: str, get: Get, clock: Clock) -> None:
        """Create the client without connecting.

        Args:
            url: receives a bearer token, and returns `uid`, `scope`, `realm` and `expires_in`.
            get: sends requests to the service.
            clock: determines when the token expires.
        """
        self._url = url
        self._get = get
        self._clock = clock
        # Tokens sent by strangers may make the service fail; that must not stop look-ups of tokens that it has
        # accepted, nor of new ones of other clients.
        self._of_known, self._of_others = CircuitBreaker(clock), ByClient(lambda: CircuitBreaker(clock))
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._lock = threading.Lock()

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port."""
        key = hashlib.sha256(token.encode()).digest()
        breaker = self._of_known if key in self._known else self._of_others()
        info = self._understood(breaker.call(self._ask, token))
        with self._lock:
            self._known.pop(key, None)
            if info is not None:
                self._known[key] = None
                if len(self._known) > KNOWN_MAX:
                    self._known.popitem(last=False)
        return info

    def is_over(self, _token: str) -> bool:
        """See the port: the service gives no details of a token that it refuses."""
        return False

    def _ask(self, token: str) -> Response:
        """The answer of a service that works; anything else counts for the circuit breaker, and is logged."""
        try:
            response = self._get(self._url, {"Authorization": f"Bearer {token}"})
            if response.status >= ERRORS:
                raise TokensUnavailable(f"The token info service answers with status {response.status}")  # noqa: TRY301
        except TokensUnavailable as ex:
            _failures.failed(_NOT_ASKED, ex, of=self._url, service=self._url)
            raise
        _failures.succeeded(_NOT_ASKED, of=self._url, service=self._url)
        return response

    def _understood(self, response: Response) -> TokenInfo | None:
        status, body = response
        if status in REFUSED:
            return None
        if status != OK:
            raise TokensUnavailable(f"The token info service answers with status {status}")
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise TokensUnavailable("The token info service does not answer with JSON") from None
        return _info(content, self._clock.now_ms()) if isinstance(content, dict) else None


class LocalAndRemote:
    """A local and a remote service: the remote one is used if the local one is unavailable, or always."""

    def __init__(self, local: TokenInfoService, remote: TokenInfoService, only_remote: Callable[[], bool]) -> None:
        """Combine the services; `only_remote` is the feature `remote_tokeninfo`."""
        self._local = local
        self._remote = remote
        self._only_remote = only_remote

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port."""
        if not self._only_remote():
            try:
                return self._local.inspect(token)
            except TokensUnavailable:
                pass
        return self._remote.inspect(token)

    def is_over(self, token: str) -> bool:
        """See the port."""
        return self._local.is_over(token) or self._remote.is_over(token)


def _info(content: Mapping[str, Any], now_ms: int) -> TokenInfo | None:
    """Parse an answer; None if it has no principal, or an expired token."""
    uid, realm, lasts_s = content.get("uid"), content.get("realm"), content.get("expires_in")
    if not is_uid(uid) or not is_realm(realm or ""):
        return None
    if lasts_s is not None and (isinstance(lasts_s, bool) or not isinstance(lasts_s, int | float) or lasts_s <= 0):
        return None
    return TokenInfo(
        uid=uid,
        scopes=scopes_of(content.get("scope")),
        realm=realm or "",
        expires_at_ms=None if lasts_s is None else now_ms + int(lasts_s * 1000),
    )
