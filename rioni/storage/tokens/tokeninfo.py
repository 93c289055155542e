"""Looks up tokens at OAuth 2 token info services (reference common#modes)."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from rioni.domain.access.authentication import TokenInfo, is_realm, is_uid, scopes_of
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.clock import Clock
from rioni.storage.tokens.circuit_breaker import CircuitBreaker
from rioni.storage.tokens.http_get import Get


OK = 200
REFUSED = frozenset((400, 401, 403))
"""Status codes for an invalid token."""


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
        self._breaker = CircuitBreaker(clock)

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port."""
        return self._breaker.call(self._fetch, token)

    def _fetch(self, token: str) -> TokenInfo | None:
        status, body = self._get(self._url, {"Authorization": f"Bearer {token}"})
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
