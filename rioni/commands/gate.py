"""The gate of everything that publishes and consumes: rights and blacklist, asked of the registry in memory."""

from collections.abc import Iterable

from rioni.domain.authorization import Attribute, Subject, check
from rioni.domain.errors import Blocked
from rioni.domain.event_type import EventType
from rioni.domain.ports import Registry
from rioni.domain.subscription import Subscription


class Gate:
    """Lets a subject pass or refuses; blocks on nothing."""

    def __init__(self, registry: Registry, default_admin: Attribute) -> None:
        self._registry = registry
        self._default_admin = default_admin

    def event_type(self, subject: Subject, name: str, operation: str) -> EventType:
        """The event type that the subject may READ or WRITE; the broker's administrators always may.

        Raises:
            EventTypeNotFound: there is no such event type.
            Denied: it has an authorization section that does not include the subject.
        """
        event_type = self._registry.event_type(name)
        section = event_type.authorization
        if section is not None:
            settings = self._registry.settings.admins
            lists = {"READ": (section.readers, settings.readers), "WRITE": (section.writers, settings.writers)}
            allowed, admins = lists[operation]
            check(allowed, subject, operation, event_type.resource, admins=(*admins, self._default_admin))
        return event_type

    def subscription(self, subject: Subject, subscription_id: str) -> Subscription:
        """The subscription that the subject may read through; its event types are not asked here.

        Raises:
            SubscriptionNotFound: there is no such subscription.
            Denied: it has an authorization section that does not include the subject.
        """
        subscription = self._registry.subscription(subscription_id)
        section = subscription.authorization
        if section is not None:
            admins = (*self._registry.settings.admins.readers, self._default_admin)
            check(section.readers, subject, "READ", subscription.resource, admins=admins)
        return subscription

    def administration(self, subject: Subject, subscription: Subscription) -> None:
        """Let the subject administer a subscription, or refuse.

        Raises:
            Denied: it has an authorization section that does not include the subject.
        """
        section = subscription.authorization
        if section is not None:
            admins = (*self._registry.settings.admins.admins, self._default_admin)
            check(section.admins, subject, "ADMIN", subscription.resource, admins=admins)

    def blacklist(
        self,
        side: str,
        subject: Subject,
        event_types: Iterable[str],
        detail: str = "Application or event type is blocked",
    ) -> None:
        """Refuse blocked applications and event types.

        Args:
            side: PRODUCER or CONSUMER.
            subject: whoever asks.
            event_types: what it asks for; all of them are checked.
            detail: what to answer.

        Raises:
            Blocked: one of them is on the blacklist.
        """
        blacklist = self._registry.settings.blacklist
        if blacklist and (
            (f"{side}_APP", subject.name) in blacklist or any((f"{side}_ET", name) in blacklist for name in event_types)
        ):
            raise Blocked(detail)
