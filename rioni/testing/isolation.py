"""Undoes the changes of a test, which it reads from the broker's own log."""

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple


if TYPE_CHECKING:
    from rioni.client import Client, Cursor


PAGE = 1_000


def position(client: "Client") -> int:
    """The position of the newest entry of the log; raises ClientError."""
    items = client.request("GET", "/audit", params={"order": "desc", "limit": 1}).json()["items"]
    return int(items[0]["position"]) if items else 0


class End(NamedTuple):
    """The end of an event type at a moment."""

    created_at: datetime | None
    """When the event type was created: one that was created later under its name is another one."""
    cursors: "Sequence[Cursor]"
    """The newest event of each partition."""


def ends(client: "Client") -> dict[str, End]:
    """The ends of all event types that can be read, by name; raises ClientError."""
    from rioni.client import Cursor, Forbidden, NotFound  # noqa: PLC0415 - PERF: only tests that use a broker pay for it

    found: dict[str, End] = {}
    for event_type in client.event_types.list():
        # In a broker of others it may be unreadable, or be deleted meanwhile.
        with contextlib.suppress(Forbidden, NotFound):
            partitions = client.partitions.list(event_type.name)
            cursors = [Cursor(partition=each.partition, offset=each.newest_available_offset) for each in partitions]
            found[event_type.name] = End(event_type.created_at, cursors)
    return found


def delete(client: "Client", event_types: Sequence[str]) -> None:
    """Delete event types, if there are any of these names, and the subscriptions to them; raises ClientError."""
    from rioni.client import NotFound  # noqa: PLC0415 - as above

    for name in event_types:
        with contextlib.suppress(NotFound):
            for subscription in [*client.subscriptions.list(event_types=[name])]:
                client.subscriptions.delete(str(subscription.id))
            client.event_types.delete(name)


def undo(client: "Client", since: int) -> None:
    """Delete event types, subscriptions and storages that were created since, and set back the settings.

    Args:
        client: with all rights.
        since: the `position` until which everything stays.

    Raises:
        ClientError: something can't be deleted.
    """
    from rioni.client import NotFound  # noqa: PLC0415 - as above

    entries = _entries(client, since)
    if any(kind.startswith("settings.") for kind, _ in entries):
        _restore_settings(client, since)
    delete_one = {
        "event-type.created": client.event_types.delete,
        "subscription.created": client.subscriptions.delete,
        "storage.created": client.storages.delete,
    }
    # The newest first: subscriptions before their event types.
    for kind, name in reversed(entries):
        if kind in delete_one:
            # The test may have done so itself.
            with contextlib.suppress(NotFound):
                delete_one[kind](name)


def _entries(client: "Client", since: int) -> list[tuple[str, str]]:
    """The entries of the log since a position: the kind of each, and the name after the kind of its resource."""
    found: list[tuple[str, str]] = []
    while True:
        params: dict[str, Any] = {"order": "asc", "after": since, "limit": PAGE}
        items = client.request("GET", "/audit", params=params).json()["items"]
        found += [(each["kind"], each["resource"].partition(":")[2]) for each in items]
        if len(items) < PAGE:
            return found
        since = items[-1]["position"]


def _restore_settings(client: "Client", since: int) -> None:
    settings = client.settings
    features = {each.feature: each.enabled for each in settings.features(as_of=since)}
    for each in settings.features():
        if each.enabled != features[each.feature]:
            settings.switch_feature(each.feature, enabled=features[each.feature])
    before, now = (set(settings.blacklist(as_of=at).entries()) for at in (since, None))
    for kind, name in now - before:
        settings.unblock(kind, name)
    for kind, name in before - now:
        settings.block(kind, name)
    if (admins := settings.admins(as_of=since)) != settings.admins():
        settings.set_admins(admins)
