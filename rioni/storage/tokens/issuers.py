"""Reads the file of the issuers of JSON Web Tokens, with the requirements for their tokens."""

import itertools
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from rioni.domain.access.authorization import Attribute, normalize_realm
from rioni.domain.errors import TokensUnavailable
from rioni.files.plain import read_toml
from rioni.storage.tokens.token_servers import why_unusable


Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Asymmetric signatures only: verifying a token must not give the ability to create one."""
Name = Annotated[str, Meta(min_length=1)]


class Issuer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An issuer whose tokens are accepted, and how its tokens are interpreted."""

    issuer: Name
    """The claim `iss`, exactly."""
    audience: Name
    """The claim `aud`, or one of its values."""
    jwks: str | None = None
    """URL of the keys; if unset, it is read from `<issuer>/.well-known/openid-configuration`."""
    algorithms: Annotated[tuple[Algorithm, ...], Meta(min_length=1)] = ("RS256",)
    leeway_s: Annotated[int, Meta(ge=0, le=60)] = 30
    """Maximum clock difference between issuer and broker."""
    nbf_required: bool = True
    """Whether a token without `nbf` is rejected; if present, it is always checked."""
    subject_claim: Name = "sub"
    scope_claim: Name = "scope"
    """A list, or a string of space-separated words."""
    realm_claim: Name = "realm"
    realm: str = ""
    """The realm of tokens without a realm claim."""
    realms: tuple[str, ...] = ()
    """The accepted realms of its tokens; empty for all."""
    attributes: tuple[Annotated[str, Meta(pattern=r"^(service|user):[^*]*\*?$")], ...] = ()
    """Accepted principals of its tokens, as `data_type:value`, where a final `*` matches anything; empty for all."""
    uid_prefix: str = ""
    """Prefix added to each of its uids."""

    def may_stand_for(self, attribute: Attribute, realm: str) -> bool:
        """Whether a token of this issuer is accepted for an attribute and a realm."""
        if self.realms and normalize_realm(realm) not in map(normalize_realm, self.realms):
            return False
        text = f"{attribute.data_type}:{attribute.value}"
        return not self.attributes or any(_covers(pattern, text) for pattern in self.attributes)

    @property
    def bounds(self) -> tuple[str, ...]:
        """Patterns of all principals that its tokens can have; an unrestricted issuer has two."""
        prefixed = tuple(f"{data_type}:{self.uid_prefix}*" for data_type in ("service", "user"))
        return self.attributes or prefixed


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    issuer: Annotated[tuple[Issuer, ...], Meta(min_length=1)]


def read_issuers(path: Path) -> tuple[Issuer, ...]:
    """Read a file of `[[issuer]]` tables.

    Raises:
        TokensUnavailable: the file can't be used; the message says why.
    """
    try:
        issuers = msgspec.convert(read_toml(path), _File).issuer
        _check(issuers)
    except (OSError, ValueError) as ex:  # also errors of TOML, UTF-8 and validation
        reason = ex.strerror if isinstance(ex, OSError) else str(ex)
        raise TokensUnavailable(f"The file of issuers {path} can't be used: {reason}") from ex
    return issuers


def _check(issuers: tuple[Issuer, ...]) -> None:
    for url in (each.jwks or each.issuer for each in issuers):
        if (reason := why_unusable(url)) is not None:
            raise ValueError(f"{url} {reason}")
    if len({each.issuer for each in issuers}) < len(issuers):
        raise ValueError("an issuer is named twice")
    for one, other in itertools.combinations(issuers, 2):
        for pattern, further in itertools.product(one.bounds, other.bounds):
            if _covers(pattern, further) or _covers(further, pattern):
                shared = max(pattern, further, key=len)
                raise ValueError(
                    f"{one.issuer} and {other.issuer} could both give out tokens for {shared}. Of several issuers each "
                    'needs identities of its own: give them attributes, such as ["user:*"], or a uid_prefix'
                )


def _covers(pattern: str, text: str) -> bool:
    """Whether a pattern, which may end with `*`, covers a text, or everything that another pattern covers."""
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
