"""JSON Web Tokens of OpenID Connect issuers: their public keys, and the verification (RFC 7519, RFC 8725)."""

import base64
import binascii
import json
import math
import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jwt
import orjson
import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from rioni.config.logs import FailureLog
from rioni.domain.access.authorization import Attribute, TokenInfo, is_realm, is_uid, scopes_of
from rioni.domain.errors import TokensUnavailable
from rioni.domain.ports.host import Clock
from rioni.storage.tokens.issuers import Issuer
from rioni.storage.tokens.token_servers import ByClient, Get, why_unusable


# --- Caches the public keys of an issuer, and fetches them rarely ---

FETCH_AGAIN_S = 30.0
"""Minimum time between fetches for one client, regardless of the number of its tokens with unknown keys."""
FETCH_FOR_ANY_S = 1.0
"""Minimum time between fetches for all clients together."""
FRESH_S = 600.0
"""Age at which keys are refetched: revoked keys are rejected from then on."""
FETCH_WAIT_S = 10.0
"""How long a request waits for another one to fetch the first keys, which has shorter deadlines."""
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
            jwks: the URL of its keys, or None.
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
        # Strangers must not use up the tries that a client needs whose new token names a new key.
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


# --- Verifies JSON Web Tokens of OpenID Connect issuers with the issuers' public keys (RFC 7519, RFC 8725) ---

CHARACTERS_MAX = 16_384
KID_CHARACTERS_MAX = 256
SEGMENTS = 3
TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
FOREIGN_KEYS = frozenset(("jku", "x5u", "jwk", "x5c", "crit", "b64"))
"""Header members by which a token would choose its own key, or change the signed content."""
SECONDS_MAX = 2**40


class WebTokens:
    """Accepts the tokens of the configured issuers."""

    def __init__(
        self, issuers: Sequence[Issuer], get: Get, clock: Clock, attribute_of: Callable[[TokenInfo], Attribute]
    ) -> None:
        """Create the verifier without fetching keys.

        Args:
            issuers: the accepted issuers with their restrictions.
            get: fetches the keys.
            clock: the clock of this process.
            attribute_of: returns the principal of a token.
        """
        self._issuers = {each.issuer: (each, KeySet(each.issuer, each.jwks, get, clock)) for each in issuers}
        self._clock = clock
        self._attribute_of = attribute_of

    def inspect(self, token: str) -> TokenInfo | None:
        """See the port. Costs a signature check, and occasionally a request to the issuer."""
        if len(token) > CHARACTERS_MAX or (parts := _parts(token)) is None:
            return None
        # Not verified yet: it only selects the keys and rules for the verification.
        claimed = parts.claims.get("iss")
        if not isinstance(claimed, str) or claimed not in self._issuers:
            return None
        issuer, keys = self._issuers[claimed]
        if not _is_sound(parts.header, issuer) or not self._is_current(parts.claims, issuer):
            return None
        key = keys.find(parts.header["kid"], parts.header["alg"])
        if key is None or not _is_signed(token, key, issuer):
            return None
        info = _info(parts.claims, issuer)
        return info if info and issuer.may_stand_for(self._attribute_of(info), info.realm) else None

    def is_over(self, token: str) -> bool:
        """See the port: decided by the claims of the token itself; its signature is not checked."""
        if len(token) > CHARACTERS_MAX or (parts := _parts(token)) is None:
            return False
        end_s, claimed = parts.claims.get("exp"), parts.claims.get("iss")
        if not isinstance(claimed, str) or claimed not in self._issuers or not _is_time(end_s):
            return False
        return bool(self._clock.now_ms() / 1000 >= end_s + self._issuers[claimed][0].leeway_s)

    def _is_current(self, claims: Mapping[str, Any], issuer: Issuer) -> bool:
        now_s = self._clock.now_ms() / 1000
        if "exp" not in claims or (issuer.nbf_required and "nbf" not in claims):
            return False
        times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
        if not all(map(_is_time, times.values())):
            return False
        begun = all(times[name] <= now_s + issuer.leeway_s for name in ("nbf", "iat") if name in times)
        return begun and now_s < times["exp"] + issuer.leeway_s


class _Parts(NamedTuple):
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


def _parts(token: str) -> _Parts | None:
    """Parse header and claims without verification; None if it is not a JSON Web Token."""
    segments = token.split(".")
    if len(segments) != SEGMENTS:
        return None
    try:
        header, claims = (json.loads(_decoded(segment), object_pairs_hook=_unique) for segment in segments[:2])
    except (ValueError, RecursionError):
        return None
    return _Parts(header, claims) if isinstance(header, dict) and isinstance(claims, dict) else None


def _decoded(segment: str) -> bytes:
    try:
        return base64.b64decode(segment + "=" * (-len(segment) % 4), altchars=b"-_", validate=True)
    except binascii.Error as ex:
        raise ValueError("not base64") from ex


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object with unique member names: duplicates might be interpreted differently by the signer."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("duplicate member")
    return found


def _is_sound(header: Mapping[str, Any], issuer: Issuer) -> bool:
    kid, kind = header.get("kid"), header.get("typ", "JWT")
    return (
        header.get("alg") in issuer.algorithms
        and isinstance(kid, str)
        and 1 <= len(kid) <= KID_CHARACTERS_MAX
        and isinstance(kind, str)
        and kind.lower() in TYPES
        and FOREIGN_KEYS.isdisjoint(header)
    )


def _is_time(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= SECONDS_MAX


def _is_signed(token: str, key: jwt.PyJWK, issuer: Issuer) -> bool:
    """Whether the issuer has signed the token, for our audience."""
    # Times are checked with our own clock.
    options: Any = {
        "require": ["iss", "aud", "exp"],
        "verify_exp": False,
        "verify_nbf": False,
        "verify_iat": False,
        "enforce_minimum_key_length": True,
    }
    algorithms = list(issuer.algorithms)
    try:
        jwt.decode(token, key, algorithms, options, audience=issuer.audience, issuer=issuer.issuer)
    except (PyJWTError, ValueError, TypeError):
        return False
    return True


def _info(claims: Mapping[str, Any], issuer: Issuer) -> TokenInfo | None:
    subject, realm = claims.get(issuer.subject_claim), claims.get(issuer.realm_claim, issuer.realm)
    if not is_uid(subject) or not is_uid(uid := issuer.uid_prefix + subject) or not is_realm(realm):
        return None
    return TokenInfo(
        uid=uid,
        scopes=scopes_of(claims.get(issuer.scope_claim)),
        realm=realm,
        expires_at_ms=int((claims["exp"] + issuer.leeway_s) * 1000),
    )
