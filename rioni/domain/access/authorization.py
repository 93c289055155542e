"""Authorisation: subjects, authorization sections of resources, and the decision (reference authorization#model)."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rioni.domain.errors import AccessDenied, Invalid


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
