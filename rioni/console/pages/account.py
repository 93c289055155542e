"""Who the user is, and what this user may do with the broker."""

from typing import Any

from rioni.console.pages.page import Page, Visit


ALLOWS = {
    "READ": "See settings, storages, timelines and nodes; read all event types and subscriptions.",
    "WRITE": "Change features, blacklist, storages, timelines, partitions; publish to and administer all event types.",
    "ADMIN": "Name administrators of the broker; administer all subscriptions.",
    "HISTORY": "See audit trail and rebuilds, and what was deleted.",
}


def _load(visit: Visit) -> dict[str, Any]:
    return {"rights": visit.api.get("/rights"), "allows": ALLOWS}


ACCOUNT = Page("/account", "account.html.jinja", "Account", _load)
