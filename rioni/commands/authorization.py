"""Authorisation: the lists that grant each right, and the checks for publishing and consuming."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain

import msgspec
from msgspec import UnsetType

from rioni.domain.access.authorization import Attribute, Subject, check, permits
from rioni.domain.errors import AdminOnly, Blocked, EventTypeNotFound, ReadOnly
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.event_log import Registry
from rioni.domain.publishing.owner import CheckOwner
from rioni.domain.streaming.batching import Visibility
from rioni.domain.subscriptions.event_filter import event_filter
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Admins


# --- The lists of attributes that grant each right, in a single table (reference authorization#rights) ---

BROKER_RIGHTS = ("READ", "WRITE", "ADMIN", "HISTORY")
EVENT_TYPE_RIGHTS = ("READ", "WRITE", "ADMIN")
SUBSCRIPTION_RIGHTS = ("READ", "ADMIN")

Lists = Callable[[str], Sequence[Attribute] | None]
"""The attributes that grant a right; None if everybody has it."""


class Grants(msgspec.Struct, frozen=True, kw_only=True):
    """The lists that grant rights, besides those of resources. Rights not in the constants are a KeyError."""

    admins: Admins
    default_admin: Attribute
    all_data_access: Sequence[Attribute] = ()
    audit_readers: Sequence[Attribute] = ()

    def broker(self, right: str) -> Sequence[Attribute]:
        """The attributes that grant a right to the broker."""
        admins = self.admins
        lists = {
            "READ": (admins.readers,),
            "WRITE": (admins.writers,),
            "ADMIN": (admins.admins,),
            "HISTORY": (admins.admins, admins.readers, self.audit_readers),
        }
        return self._joined(*lists[right])

    def event_type(self, event_type: EventType, right: str) -> Sequence[Attribute] | None:
        """The attributes that grant a right to an event type; None for everybody."""
        section, admins = event_type.authorization, self.admins
        if section is None:
            return None
        lists = {
            "READ": (section.readers, admins.readers, self.all_data_access),
            "WRITE": (section.writers, admins.writers),
            "ADMIN": (section.admins, admins.writers),
        }
        return self._joined(*lists[right])

    def subscription(self, subscription: Subscription, right: str) -> Sequence[Attribute] | None:
        """The attributes that grant a right to a subscription, not to its event types; None for everybody."""
        section, admins = subscription.authorization, self.admins
        if section is None:
            return None
        lists = {"READ": (section.readers, admins.readers), "ADMIN": (section.admins, admins.admins)}
        return self._joined(*lists[right])

    def _joined(self, *lists: Sequence[Attribute]) -> Sequence[Attribute]:
        return (*chain.from_iterable(lists), self.default_admin)


def granted(rights: Sequence[str], lists: Lists, subject: Subject) -> list[str]:
    """The subset of the rights that a subject has."""
    return [right for right in rights if permits(lists(right), subject)]


# --- Authorisation checks for publishing and consuming: permissions and blacklist, from the registry in memory ---


class Rights(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rights that the lists grant a subject."""

    subject: str
    """The name of the subject."""
    broker: list[str]
    event_type: list[str] | None = None
    """Rights to the event type, if one was named."""
    subscription: list[str] | None = None
    """Rights to the subscription, if one was named: READ and ADMIN; if the subject may also READ all of its event
    types, STREAM in addition to READ and REDRIVE in addition to ADMIN."""


WITH_EVENTS = {"READ": "STREAM", "ADMIN": "REDRIVE"}
"""Rights to a subscription with those that they are together with READ of all of its event types."""


class AccessPolicy:
    """Admits or refuses a subject; never blocks."""

    def __init__(
        self,
        registry: Registry,
        default_admin: Attribute,
        all_data_access: Sequence[Attribute] = (),
        audit_readers: Sequence[Attribute] = (),
        auditors: Sequence[Attribute] = (),
    ) -> None:
        """Keep the registry and the settings.

        Args:
            registry: holds authorization sections, administrators and blacklist.
            default_admin: may do everything.
            all_data_access: may read every event type.
            audit_readers: may read the history.
            auditors: the audit readers who may create nothing.
        """
        self._registry = registry
        self._default_admin = default_admin
        self._all_data_access = all_data_access
        self._audit_readers = audit_readers
        self._auditors = auditors

    def event_type(self, subject: Subject, name: str, operation: str) -> EventType:
        """The event type that the subject may READ or WRITE; the broker's administrators always may.

        Raises:
            EventTypeNotFound: there is no such event type.
            AccessDenied: it has an authorization section that does not include the subject.
        """
        event_type = self._registry.event_type(name)
        check(self._grants.event_type(event_type, operation), subject, operation, event_type.resource)
        return event_type

    def event_owner(self, subject: Subject) -> CheckOwner:
        """Return a check whether the subject may write events on behalf of an owner; administrators always may."""
        of_all = self.may(subject, "WRITE")

        def check_owner(owner: Attribute, eid: str) -> None:
            if not of_all:
                check((owner,), subject, "WRITE", f"event:{eid}")

        return check_owner

    def visibility(
        self, subject: Subject, subscription_id: str | None = None, *, wanted: str | UnsetType | None = None
    ) -> Visibility:
        """Return the filter for the events that the subject may read and asked for.

        Administrators may read all.

        Args:
            subject: the reader.
            subscription_id: the id of the subscription that it reads through, whose filter counts; None for no
                subscription.
            wanted: a filter, if it reads without a subscription.

        Raises:
            SubscriptionNotFound: there is no such subscription.
        """
        settings = self._registry.settings
        asked = "event_owner_selector_authz" in settings.features and not self.may(subject, "READ")
        if subscription_id:
            wanted = self._registry.subscription(subscription_id).filter
        return Visibility(
            subscription_id=subscription_id,
            reader=subject if asked else None,
            wanted=event_filter(wanted) if wanted else None,
        )

    def subscription(self, subject: Subject, subscription_id: str) -> Subscription:
        """The subscription that the subject may read through; access to its event types is not checked here.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            AccessDenied: it has an authorization section that does not include the subject.
        """
        subscription = self._registry.subscription(subscription_id)
        check(self._grants.subscription(subscription, "READ"), subject, "READ", subscription.resource)
        return subscription

    def administration(self, subject: Subject, subscription: Subscription) -> None:
        """Check that the subject may administer a subscription.

        Raises:
            AccessDenied: it has an authorization section that does not include the subject.
        """
        check(self._grants.subscription(subscription, "ADMIN"), subject, "ADMIN", subscription.resource)

    def dead_letters(self, subject: Subject, subscription_id: str) -> Subscription:
        """The subscription whose dead letters the subject may read: it administers it, and may read its event types.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            Blocked: the application or an event type of the subscription may not consume.
            AccessDenied: the subject does not administer it, or may not read one of its event types.
        """
        subscription = self._registry.subscription(subscription_id)
        self.blacklist("CONSUMER", subject, subscription.event_types, "Application or subscription is blocked")
        self.administration(subject, subscription)
        for name in subscription.event_types:
            with contextlib.suppress(EventTypeNotFound):
                self.event_type(subject, name, "READ")
        return subscription

    def redrive(self, subject: Subject, subscription_id: str) -> Subscription:
        """The subscription whose dead letters the subject may publish again.

        Raises:
            ReadOnly: writing is switched off.
            Blocked: as of `dead_letters`, or they may not publish.
            SubscriptionNotFound, AccessDenied: as of `dead_letters`.
        """
        if self.is_read_only:
            raise ReadOnly
        subscription = self.dead_letters(subject, subscription_id)
        self.blacklist("PRODUCER", subject, subscription.event_types)
        return subscription

    def is_auditor(self, subject: Subject) -> bool:
        """Whether the subject may create no event types, since it reads the history and does not administer."""
        return not subject.unrestricted and permits(self._auditors, subject) and not self.may(subject, "WRITE")

    def may(self, subject: Subject, right: str) -> bool:
        """Whether the subject has a right to the broker: READ, WRITE, ADMIN or HISTORY."""
        return permits(self._grants.broker(right), subject)

    @property
    def is_read_only(self) -> bool:
        """Whether writing is switched off."""
        return "disable_db_write_operations" in self._registry.settings.features

    def event_types_of(self, subscription_id: str) -> Sequence[str]:
        """The names of the event types of a subscription, for the blacklist.

        Raises:
            SubscriptionNotFound: there is no such subscription.
        """
        return self._registry.subscription(subscription_id).event_types

    def rights(self, subject: Subject, event_type: str | None = None, subscription_id: str | None = None) -> Rights:
        """The rights of the subject to the broker, and to an event type and a subscription.

        Raises:
            EventTypeNotFound: there is no such event type.
            SubscriptionNotFound: there is no such subscription.
        """
        return Rights(
            subject=subject.name,
            broker=granted(BROKER_RIGHTS, self._grants.broker, subject),
            event_type=None if event_type is None else self._event_type_rights(subject, event_type),
            subscription=None if subscription_id is None else self._subscription_rights(subject, subscription_id),
        )

    def history(self, subject: Subject) -> None:
        """Check that the subject may read all that ever happened.

        Raises:
            AdminOnly: it is no administrator, reader or auditor of the broker.
        """
        if not self.may(subject, "HISTORY"):
            raise AdminOnly(
                "The history is for administrators and readers of the broker, and those whom the setting audit_readers "
                "names"
            )

    def blacklist(
        self,
        side: str,
        subject: Subject,
        event_types: Iterable[str],
        detail: str = "Application or event type is blocked",
    ) -> None:
        """Reject blocked applications and event types.

        Args:
            side: PRODUCER or CONSUMER.
            subject: the subject of the request.
            event_types: the requested ones; all of them are checked.
            detail: the detail of the error.

        Raises:
            Blocked: one of them is on the blacklist.
        """
        blacklist = self._registry.settings.blacklist
        if blacklist and (
            any((f"{side}_APP", name) in blacklist for name in (subject.name, *map(str, subject.attributes)))
            or any((f"{side}_ET", name) in blacklist for name in event_types)
        ):
            raise Blocked(detail)

    @property
    def _grants(self) -> Grants:
        return Grants(
            admins=self._registry.settings.admins,
            default_admin=self._default_admin,
            all_data_access=self._all_data_access,
            audit_readers=self._audit_readers,
        )

    def _event_type_rights(self, subject: Subject, name: str) -> list[str]:
        lists = partial(self._grants.event_type, self._registry.event_type(name))
        return granted(EVENT_TYPE_RIGHTS, lists, subject)

    def _subscription_rights(self, subject: Subject, subscription_id: str) -> list[str]:
        subscription = self._registry.subscription(subscription_id)
        rights = granted(SUBSCRIPTION_RIGHTS, partial(self._grants.subscription, subscription), subject)
        if all(self._may_read(subject, name) for name in subscription.event_types):
            rights += [further for needed, further in WITH_EVENTS.items() if needed in rights]
        return rights

    def _may_read(self, subject: Subject, name: str) -> bool:
        """Whether no right is missing to read an event type; one that was deleted needs none."""
        try:
            return "READ" in self._event_type_rights(subject, name)
        except EventTypeNotFound:
            return True
