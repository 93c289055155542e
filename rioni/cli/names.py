"""Finds a subscription that users name by its owning application and consumer group."""

from typing import TYPE_CHECKING
from uuid import UUID

from rioni.domain.errors import Invalid
from rioni.domain.nearest import proposal


if TYPE_CHECKING:
    from rioni.client import Client, Subscription

CANDIDATES_SHOWN = 10


def subscription_id(client: "Client", text: str, *, as_of: str | None = None) -> str:
    """The id of a subscription that a user names: its id, or `owning_application/consumer_group`.

    Args:
        client: of the broker, which is asked only for names.
        text: of the user.
        as_of: a position of the log, or a time, at which the subscription has the name.

    Raises:
        Invalid: there is no subscription of this name, or more than one.
        ClientError: the broker does not answer.
    """
    if _is_id(text) or "/" not in text:
        return text
    # Both parts may have slashes.
    parts = text.split("/")
    owners = ["/".join(parts[:end]) for end in range(1, len(parts))]
    found = [
        each
        for owner in owners
        for each in client.subscriptions.list(owning_application=owner, as_of=as_of)
        if _name(each) == text
    ]
    if len(found) == 1:
        return found[0].id
    if found:
        shown = [f"{each.id} ({', '.join(each.event_types)})" for each in found[:CANDIDATES_SHOWN]]
        more = "" if len(found) <= CANDIDATES_SHOWN else f", and {len(found) - CANDIDATES_SHOWN} more"
        raise Invalid(f"There are {len(found)} subscriptions {text}; give the id of one: {', '.join(shown)}{more}.")
    names = (_name(each) for each in client.subscriptions.list(as_of=as_of))
    raise Invalid(f"There is no subscription {text}{proposal(text, names)}")


def check_event_type(client: "Client", name: str) -> None:
    """Check that there is an event type; raises Invalid."""
    from rioni.client import NotFound

    try:
        client.event_types.get(name)
    except NotFound as ex:
        known = (each.name for each in client.event_types.list())
        raise Invalid(f"There is no event type {name} on {client.url}{proposal(name, known)}") from ex


def check_reads(subscription: "Subscription", event_type: str) -> None:
    """Check that a subscription reads an event type; raises Invalid."""
    names = subscription.event_types
    if event_type not in names:
        more = "" if len(names) <= CANDIDATES_SHOWN else f", and {len(names) - CANDIDATES_SHOWN:,} more"
        known = f"; it reads {', '.join(names[:CANDIDATES_SHOWN])}{more}."
        raise Invalid(f"The subscription does not read {event_type}{proposal(event_type, names, known)}")


def _name(subscription: "Subscription") -> str:
    return f"{subscription.owning_application}/{subscription.consumer_group}"


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
