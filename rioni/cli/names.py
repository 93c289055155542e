"""Finds what users name: a subscription by owning application and consumer group, and the nearest of unknown names."""

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING
from uuid import UUID

from rioni.domain.errors import Invalid


if TYPE_CHECKING:
    from rioni.client import Client, Subscription

NAMES_MAX = 10_000
"""Names among which the nearest one is looked for."""
CANDIDATES_SHOWN = 10
NEAR = 0.6
"""Likeness of a name that is suggested, from 0 to 1."""


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


def proposal(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a name that is not known: with the nearest of the names that are there."""
    near = difflib.get_close_matches(name, set(islice(names, NAMES_MAX)), n=1, cutoff=NEAR)
    return f"; did you mean {near[0]}?" if near else "."


def _name(subscription: "Subscription") -> str:
    return f"{subscription.owning_application}/{subscription.consumer_group}"


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
