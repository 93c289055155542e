"""Authorisation checks for publishing and consuming: permissions and blacklist, from the registry in memory."""

from collections.abc import Iterable, Sequence

from msgspec import UnsetType

from rioni.domain.access.authorization import Attribute, Subject, check, permits
from rioni.domain.errors import AdminOnly, Blocked
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.registry import Registry
from rioni.domain.publishing.owner import CheckOwner
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.subscriptions.event_filter import event_filter
from rioni.domain.subscriptions.subscription import Subscription


class AccessPolicy:
    """Admits or refuses a subject; never blocks."""

    def __init__(
        self,
        registry: Registry,
        default_admin: Attribute,
        all_data_access: Sequence[Attribute] = (),
        audit_readers: Sequence[Attribute] = (),
    ) -> None:
        """Keep the registry and the settings.

        Args:
            registry: holds authorization sections, administrators and blacklist.
            default_admin: may do everything.
            all_data_access: may read every event type.
            audit_readers: may read the history.
        """
        self._registry = registry
        self._default_admin = default_admin
        self._all_data_access = all_data_access
        self._audit_readers = audit_readers

    def event_type(self, subject: Subject, name: str, operation: str) -> EventType:
        """The event type that the subject may READ or WRITE; the broker's administrators always may.

        Raises:
            EventTypeNotFound: there is no such event type.
            AccessDenied: it has an authorization section that does not include the subject.
        """
        event_type = self._registry.event_type(name)
        section = event_type.authorization
        if section is not None:
            settings = self._registry.settings.admins
            lists = {
                "READ": (section.readers, (*settings.readers, *self._all_data_access)),
                "WRITE": (section.writers, settings.writers),
            }
            allowed, admins = lists[operation]
            check(allowed, subject, operation, event_type.resource, admins=(*admins, self._default_admin))
        return event_type

    def event_owner(self, subject: Subject) -> CheckOwner:
        """Return a check whether the subject may write events on behalf of an owner; administrators always may."""
        admins = (*self._registry.settings.admins.writers, self._default_admin)

        def check_owner(owner: Attribute, eid: str) -> None:
            check((owner,), subject, "WRITE", f"event:{eid}", admins=admins)

        return check_owner

    def visibility(
        self, subject: Subject, subscription_id: str | None = None, *, wanted: str | UnsetType | None = None
    ) -> Visibility:
        """Return which events the subject may read and asked for.

        Administrators may read all.

        Args:
            subject: the reader.
            subscription_id: of the subscription that it reads through, whose filter counts; None for no subscription.
            wanted: a filter, where it reads without a subscription.

        Raises:
            SubscriptionNotFound: there is no such subscription.
        """
        settings = self._registry.settings
        admins = (*settings.admins.readers, self._default_admin)
        asked = "event_owner_selector_authz" in settings.features and not permits(admins, subject)
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
        section = subscription.authorization
        if section is not None:
            admins = (*self._registry.settings.admins.readers, self._default_admin)
            check(section.readers, subject, "READ", subscription.resource, admins=admins)
        return subscription

    def administration(self, subject: Subject, subscription: Subscription) -> None:
        """Check that the subject may administer a subscription.

        Raises:
            AccessDenied: it has an authorization section that does not include the subject.
        """
        section = subscription.authorization
        if section is not None:
            admins = (*self._registry.settings.admins.admins, self._default_admin)
            check(section.admins, subject, "ADMIN", subscription.resource, admins=admins)

    def may_read_history(self, subject: Subject) -> bool:
        """Whether the subject may read all that ever happened: as an administrator, reader or auditor of the broker."""
        admins = self._registry.settings.admins
        return permits((*admins.admins, *admins.readers, self._default_admin, *self._audit_readers), subject)

    def history(self, subject: Subject) -> None:
        """Check that the subject may read all that ever happened.

        Raises:
            AdminOnly: it is no administrator, reader or auditor of the broker.
        """
        if not self.may_read_history(subject):
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
            subject: of the request.
            event_types: the requested ones; all of them are checked.
            detail: of the error.

        Raises:
            Blocked: one of them is on the blacklist.
        """
        blacklist = self._registry.settings.blacklist
        if blacklist and (
            (f"{side}_APP", subject.name) in blacklist or any((f"{side}_ET", name) in blacklist for name in event_types)
        ):
            raise Blocked(detail)
