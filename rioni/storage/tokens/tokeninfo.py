"""Looks up tokens at OAuth 2 token info services (reference common#modes)."""

import hashlib
import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import structlog

from rioni.config.logs import FailureLog
from rioni.domain.access.authorization import TokenInfo, is_realm, is_uid, scopes_of
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import Clock
from rioni.storage.tokens.token_servers import ByClient, CircuitBreaker, Get, Response


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
