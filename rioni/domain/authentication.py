"""Authentication: token sources, token contents, and the requirements of each mode.

Source: reference common#modes, authorization#attributes.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Protocol, TypeGuard

import msgspec

from rioni.domain.authorization import Attribute, Subject
from rioni.domain.errors import InsufficientRealm, InsufficientScope


UID_SCOPE = "uid"
"""The scope that every token of the modes `basic` and `realm` has."""
UID_CHARACTERS_MAX = 255


class Mode(StrEnum):
    """How strictly tokens are checked."""

    OFF = "off"
    """Not at all: everybody may do everything."""
    BASIC = "basic"
    """A token with the scope `uid`."""
    REALM = "realm"
    """The same, of one of the realms that are let in."""
    FULL = "full"
    """A token with the scope of the operation."""


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the source of a token says about it."""

    uid: str
    scopes: frozenset[str] = frozenset()
    realm: str = ""
    """Where the uid is unique, such as `services`; a slash at its beginning does not count."""
    expires_at_ms: int | None = None
    """Milliseconds since the epoch; None where the source does not say."""


class Tokens(Protocol):
    """Knows whom bearer tokens stand for. A token is a secret: it is neither kept nor written anywhere."""

    def inspect(self, token: str) -> TokenInfo | None:
        """What there is to know of a token that is valid now; None for all others, whatever they are.

        May ask a server, within a deadline of seconds; blocks the caller alone then.

        Raises:
            TokensUnavailable: no token source is available.
        """


class TokenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the settings demand of tokens."""

    mode: Mode = Mode.OFF
    realms: frozenset[str] = frozenset()
    """The realms that are let in in mode `realm`."""
    service_realms: frozenset[str] = frozenset()
    """The realms whose uids are services; all others are users."""

    def check(self, info: TokenInfo, scope: str) -> None:
        """Let a token pass or refuse it.

        Args:
            info: of the token.
            scope: what the operation needs in mode `full`.

        Raises:
            InsufficientScope: the token lacks the scope that the mode asks for.
            InsufficientRealm: the token's realm is not let in.
        """
        needed = scope if self.mode is Mode.FULL else UID_SCOPE
        if needed not in info.scopes:
            raise InsufficientScope(needed)
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
    """A realm by the name that it is compared with."""
    return name.removeprefix("/")


def is_uid(value: object) -> TypeGuard[str]:
    """Whether a value can name a subject: it reaches the log, and the metadata of events."""
    return isinstance(value, str) and 1 <= len(value) <= UID_CHARACTERS_MAX and value.isprintable()


def scopes_of(value: object) -> frozenset[str]:
    """The scopes that a source states, as a list or as words of a text; none if it is neither."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, Collection) and all(isinstance(scope, str) for scope in value):
        return frozenset(value)
    return frozenset()
