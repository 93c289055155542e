"""The lists of attributes that grant each right, in a single table (reference authorization#rights)."""

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from rioni.domain.access.authorization import Attribute, Subject, permits
from rioni.domain.event_types.event_type import EventType
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.settings import Admins


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
