"""Verifies JSON Web Tokens of OpenID Connect issuers with the issuers' public keys (RFC 7519, RFC 8725)."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import jwt
from jwt.exceptions import PyJWTError

from rioni.domain.access.authentication import TokenInfo, is_realm, is_uid, scopes_of
from rioni.domain.access.authorization import Attribute
from rioni.domain.ports.clock import Clock
from rioni.storage.tokens.http_get import Get
from rioni.storage.tokens.issuers import Issuer
from rioni.storage.tokens.key_set import KeySet


CHARACTERS_MAX = 16_384
KID_CHARACTERS_MAX = 256
SEGMENTS = 3
TYPES = frozenset(("jwt", "at+jwt", "application/at+jwt"))
FOREIGN_KEYS = frozenset(("jku", "x5u", "jwk", "x5c", "crit", "b64"))
"""Header members by which a token would choose its own key, or change what is signed."""
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
            clock: of this process.
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
        """See the port: what the token itself says; its signature is not checked."""
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
