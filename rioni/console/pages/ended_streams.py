"""Why streams of a subscription ended, in words, and what to do about it."""

from collections.abc import Mapping
from typing import Any

from rioni.console.api import path_of
from rioni.console.pages.page import Visit


_USUAL = "Nothing to do: clients open another one."
REASONS: Mapping[str, tuple[str, str]] = {
    "stream_timeout": ("Reached its stream timeout", _USUAL),
    "stream_limit": ("Delivered as many events as the client asked for", _USUAL),
    "keep_alive_limit": ("No events for as long as the client wanted to wait", _USUAL),
    "commit_timeout": (
        "The client did not commit in time",
        "Its events are delivered again. Let it commit more often, ask for fewer events, or for a longer timeout.",
    ),
    "no_partition": (
        "Other streams read all partitions",
        "Run no more streams than there are partitions, or add partitions.",
    ),
    "beyond_end": ("A committed cursor is beyond the last event", "Reset the cursors of this subscription."),
    "reset": ("The cursors were reset, or partitions were added", _USUAL),
    "blocked": ("The client or an event type is blocked", "An administrator can unblock it in the settings."),
    "unauthorized": (
        "The client lost the right to read",
        "Grant it again in the authorization of the subscription or the event type.",
    ),
    "token_expired": ("The token of the client expired or was withdrawn", "Let the client renew its token."),
    "event_type_deleted": ("An event type was deleted", "Stop the client, or subscribe it to another event type."),
    "subscription_deleted": ("The subscription was deleted", "Stop the client, or create another subscription."),
    "session_ended": (
        "Closed, by its client or by others, or its session was lost",
        "Nothing to do if it was closed. If not, look into the logs of the broker and of ZooKeeper.",
    ),
    "shutdown": ("The worker stopped", _USUAL),
    "failure": (
        "An error in the broker, or a filter that takes too long",
        "The log of the broker says which; simplify the filter.",
    ),
    "client_gone": (
        "The client closed the connection, or read nothing for too long",
        "Nothing to do if it stopped. If not, look at its log, at proxies and at the network between.",
    ),
}
"""What each reason of the API means, and what to do."""


def load(visit: Visit) -> Any:
    """The ended streams of the subscription, each with the members `meaning` and `advice`, or the problem."""
    found = visit.api.attempt(path_of("subscriptions", visit.path["id"], "ended-streams"))
    for each in found.get("items", ()):
        # A node of a newer version may have recorded one that is not known here.
        each["meaning"], each["advice"] = REASONS.get(each["reason"], (each["reason"], ""))
    return found
