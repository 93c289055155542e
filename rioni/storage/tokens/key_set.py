"""Caches the public keys of an issuer, and fetches them rarely."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from rioni.config.failures import FailureLog
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.clock import Clock
from rioni.storage.tokens.by_client import ByClient
from rioni.storage.tokens.http_get import Get, why_unusable


FETCH_AGAIN_S = 30.0
"""Minimum time between fetches for one client, regardless of the number of its tokens with unknown keys."""
FETCH_FOR_ANY_S = 1.0
"""Minimum time between fetches for all clients together."""
FRESH_S = 600.0
"""Age at which keys are refetched: revoked keys are rejected from then on."""
FETCH_WAIT_S = 10.0
"""How long a request waits for another one to fetch the first keys, which has shorter deadlines of its own."""
STALE_S = 86_400.0
"""How long keys are used while the issuer is unreachable."""
KEYS_MAX = 100
OK = 200
KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key types by prefix of the algorithm; never a shared secret."""

_failures = FailureLog(structlog.get_logger("rioni.tokens"))

_NOT_FETCHED = "keys can't be fetched"


class _Tries:
    """When keys were last fetched for a client."""

    last_s = float("-inf")


class KeySet:
    """The keys that an issuer publishes as a JSON Web Key Set."""

    def __init__(self, issuer: str, jwks: str | None, get: Get, clock: Clock) -> None:
        """Start without keys.

        Args:
            issuer: queried for the URL of its keys if `jwks` is None.
            jwks: that URL.
            get: fetches from the issuer.
            clock: determines the age of the keys.
        """
        self._issuer = issuer
        self._jwks = jwks
        self._get = get
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: Mapping[str, Sequence[Mapping[str, Any]]] = {}
        self._fetched_at_s = self._tried_at_s = float("-inf")
        # Strangers must not use up what a client needs whose new token names a new key.
        self._tries = ByClient(_Tries)

    def find(self, kid: str, algorithm: str) -> PyJWK | None:
        """Return the key with this id, if it is valid for this algorithm; may fetch keys.

        Raises:
            TokensUnavailable: the issuer has been unreachable for too long, or has just been asked for another client.
        """
        now_s, tries = self._clock.monotonic(), self._tries()
        if kid not in self._keys or now_s - self._fetched_at_s >= FRESH_S:
            may_ask = now_s - tries.last_s >= FETCH_AGAIN_S
            if may_ask and not self._renew(now_s, tries) and kid not in self._keys:
                raise TokensUnavailable("The keys of the issuer are being fetched for another client")
        if self._clock.monotonic() - self._fetched_at_s >= STALE_S:
            raise TokensUnavailable("The keys of the issuer can't be fetched")
        for data in self._keys.get(kid, ()):
            if (key := _usable(data, algorithm)) is not None:
                return key
        return None

    def _renew(self, now_s: float, tries: _Tries) -> bool:
        """Fetch the keys, unless that is done for another client or was a moment ago; whether it was tried."""
        # With cached keys, a request does not wait for another one that fetches new keys.
        if not self._lock.acquire(timeout=0 if self._keys else FETCH_WAIT_S):
            return False
        try:
            if now_s - self._tried_at_s < FETCH_FOR_ANY_S:
                return False
            self._tried_at_s = tries.last_s = now_s
            self._keys = self._fetch()
            self._fetched_at_s = self._clock.monotonic()
        except TokensUnavailable as ex:
            _failures.failed(_NOT_FETCHED, ex, of=self._issuer, issuer=self._issuer)
        else:
            _failures.succeeded(_NOT_FETCHED, of=self._issuer, issuer=self._issuer)
        finally:
            self._lock.release()
        return True

    def _fetch(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        url = self._jwks
        if url is None:
            configuration = self._json(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
            url = configuration.get("jwks_uri")
            if configuration.get("issuer") != self._issuer or not isinstance(url, str) or why_unusable(url):
                raise TokensUnavailable("its configuration names another issuer, or no usable jwks_uri")
        keys = self._json(url).get("keys")
        if not isinstance(keys, list):
            raise TokensUnavailable("its keys are no JSON Web Key Set")
        found: dict[str, list[Mapping[str, Any]]] = {}
        for data in keys[:KEYS_MAX]:
            if isinstance(data, dict) and isinstance(data.get("kid"), str):
                found.setdefault(data["kid"], []).append(data)
        return found

    def _json(self, url: str) -> dict[str, Any]:
        status, body = self._get(url, {})
        if status != OK:
            raise TokensUnavailable(f"{url} answers with status {status}")
        try:
            content = orjson.loads(body)
        except orjson.JSONDecodeError:
            content = None
        if not isinstance(content, dict):
            raise TokensUnavailable(f"{url} does not answer with a JSON object")
        return content


def _usable(data: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    if data.get("kty") != KEY_TYPES[algorithm[:2]] or data.get("use", "sig") != "sig":
        return None
    if data.get("alg", algorithm) != algorithm:
        return None
    try:
        return PyJWK(dict(data), algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
