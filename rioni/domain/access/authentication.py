"""Authentication: token sources, token contents, and the requirements of each mode.

Source: reference common#modes, authorization#attributes.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol, TypeGuard

import msgspec

from rioni.domain.access.authorization import Attribute, Subject
from rioni.domain.errors import InsufficientRealm, InsufficientScope


UID_SCOPE = "uid"
"""The scope that every token of the modes `basic` and `realm` has."""
UID_CHARACTERS_MAX = 255
WELL_KNOWN_ADMIN = "service:stups_nakadi"
"""The administrator of the original API without authentication."""


class Mode(StrEnum):
    """How strictly tokens are checked."""

    OFF = "off"
    """No authentication: all requests may do everything."""
    BASIC = "basic"
    """A token with the scope `uid`."""
    REALM = "realm"
    """A token with the scope `uid`, of one of the accepted realms."""
    FULL = "full"
    """A token with the scope of the operation."""


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a token, as its source states them."""

    uid: str
    scopes: frozenset[str] = frozenset()
    realm: str = ""
    """The realm in which the uid is unique, such as `services`; a leading slash is ignored."""
    expires_at_ms: int | None = None
    """Expiry in milliseconds since the epoch; None if the source does not state it."""


class Tokens(Protocol):
    """Resolves bearer tokens to principals. A token is a secret: it is neither stored nor logged."""

    def inspect(self, token: str) -> TokenInfo | None:
        """Return the contents of a token that is valid now; None for any other token.

        May query a server, with a time-out of seconds; blocks the calling greenlet only.

        Raises:
            TokensUnavailable: no token source is available.
        """

    def is_over(self, token: str, /) -> bool:
        """Whether a token that was refused is known to have expired. Asks nobody, never blocks."""


class TokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of the settings on tokens."""

    mode: Mode = Mode.OFF
    realms: frozenset[str] = frozenset()
    """The accepted realms in mode `realm`."""
    service_realms: frozenset[str] = frozenset()
    """The realms whose uids are services; all others are users."""

    def check(self, info: TokenInfo, scope: str) -> None:
        """Check that a token suffices.

        Args:
            info: the information of the token.
            scope: required by the operation in mode `full`.

        Raises:
            InsufficientScope: the token lacks the scope that the mode requires.
            InsufficientRealm: the token's realm is not accepted.
        """
        needed = scope if self.mode is Mode.FULL else UID_SCOPE
        if needed not in info.scopes:
            raise InsufficientScope(needed, info.scopes)
        if self.mode is Mode.REALM and normalize_realm(info.realm) not in self.realms:
            raise InsufficientRealm

    def subject(self, info: TokenInfo) -> Subject:
        """The principal of a token."""
        attributes = frozenset({self.attribute(info)})
        return Subject(name=info.uid, realm=normalize_realm(info.realm), attributes=attributes)

    def attribute(self, info: TokenInfo) -> Attribute:
        """The one attribute of a token's subject: `service:<uid>` or `user:<uid>`, by the realm."""
        data_type = "service" if normalize_realm(info.realm) in self.service_realms else "user"
        return Attribute(data_type, info.uid)


def normalize_realm(name: str) -> str:
    """The name of a realm in normal form, for comparison."""
    return name.removeprefix("/")


def is_uid(value: object) -> TypeGuard[str]:
    """Whether a value can name a subject: it is stored in the log, and in the metadata of events."""
    return isinstance(value, str) and 1 <= len(value) <= UID_CHARACTERS_MAX and value.isprintable()


def is_realm(value: object) -> TypeGuard[str]:
    """Whether a value can name a realm; an empty text means no realm."""
    return isinstance(value, str) and len(value) <= UID_CHARACTERS_MAX and (value.isprintable() or not value)


def scopes_of(value: object) -> frozenset[str]:
    """The scopes that a source states, as a list or a space-separated string; empty for any other value."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, Collection) and all(isinstance(scope, str) for scope in value):
        return frozenset(value)
    return frozenset()
