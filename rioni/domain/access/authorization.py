"""Authorisation: subjects, sections of resources, decisions; authentication: tokens, and what each mode requires."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Protocol, TypeGuard

import msgspec

from rioni.domain.errors import AccessDenied, InsufficientRealm, InsufficientScope, Invalid


# Authorisation: subjects, authorization sections of resources, and the decision (reference authorization#model).


class Attribute(msgspec.Struct, frozen=True, order=True):
    """One property that a subject may have, such as `("service", "stups_shop")`; `("*", "*")` matches all subjects."""

    data_type: str
    value: str

    def __str__(self) -> str:
        return f"{self.data_type}:{self.value}"


EVERYBODY = Attribute("*", "*")


class EventTypeAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization section of an event type: administrators, readers, writers, each with at least one attribute."""

    admins: tuple[Attribute, ...]
    readers: tuple[Attribute, ...]
    writers: tuple[Attribute, ...]


class SubscriptionAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """Authorization section of a subscription: administrators and readers."""

    admins: tuple[Attribute, ...]
    readers: tuple[Attribute, ...]


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The subject of a request."""

    name: str
    """The client's id: names the publisher in metadata, and the actor in the log."""
    realm: str = ""
    """The realm in which the name is unique; empty while authentication is off."""
    attributes: frozenset[Attribute] = frozenset()
    unrestricted: bool = False
    """Whether no permission is checked: authentication is off, or the broker itself acts."""

    @property
    def key(self) -> str:
        """The subject's key wherever something is kept or counted for it: names are unique only within a realm.

        The name, followed by a line feed and the realm if there is one; neither of them holds a line feed.
        """
        return f"{self.name}\n{self.realm}" if self.realm else self.name


def name_and_realm(key: str) -> tuple[str, str]:
    """The name and the realm of a subject's key; the realm is empty if it has none, or is not known."""
    name, _, realm = key.partition("\n")
    return name, realm


UNAUTHENTICATED = Subject(name="unauthenticated", unrestricted=True)
"""The subject of every request while authentication is off."""

NOBODY = Subject(name="unauthenticated")
"""The subject of a request that was rejected before authentication: it may do nothing."""

BROKER = Subject(name="rioni", unrestricted=True)
"""The broker itself."""


def is_anonymous(subject: Subject) -> bool:
    """Whether it is not known who the subject is: authentication is off, or has not succeeded."""
    return subject is NOBODY or subject is UNAUTHENTICATED


def permits(attributes: Sequence[Attribute] | None, subject: Subject) -> bool:
    """Whether any attribute of the list matches the subject; without a list all subjects match."""
    if attributes is None or subject.unrestricted:
        return True
    return any(attribute == EVERYBODY or attribute in subject.attributes for attribute in attributes)


def check(attributes: Sequence[Attribute] | None, subject: Subject, operation: str, resource: str) -> None:
    """Check that the subject may perform an operation on a resource.

    Args:
        attributes: the attributes that grant it; None if everybody may.
        subject: the subject of the request.
        operation: READ, WRITE, ADMIN or VIEW.
        resource: such as `event-type:order.created`.

    Raises:
        AccessDenied: none of the attributes matches the subject.
    """
    if not permits(attributes, subject):
        raise AccessDenied(operation, resource)


def check_duplicates(lists: Iterable[tuple[str, Sequence[Attribute]]]) -> None:
    """Reject lists that name an attribute twice (reference authorization#duplicates).

    Args:
        lists: pairs of the list's name in the error text and its attributes.

    Raises:
        Invalid: names every list with its duplicates.
    """
    problems = []
    for name, attributes in lists:
        twice = sorted(attribute for attribute, count in Counter(attributes).items() if count > 1)
        if twice:
            named = ", ".join(map(str, twice))
            problems.append(f"authorization property '{name}' contains duplicated attribute(s): {named}")
    if problems:
        raise Invalid("; ".join(problems))


# --- Authentication: token sources, token contents, and the requirements of each mode ---
#
# Source: reference common#modes, authorization#attributes.

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
