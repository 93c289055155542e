"""The user and the user's rights, so that pages name what is not allowed before it fails."""

from collections.abc import Mapping
from typing import Any

from rioni.console.api import ApiProblem
from rioni.console.pages.page import Page, Right, Visit


# --- The user, and the user's rights ---

ALLOWS = {
    "READ": "See settings, storages, timelines and nodes; read all event types and subscriptions.",
    "WRITE": "Change features, blacklist, storages, timelines, partitions; publish to and administer all event types.",
    "ADMIN": "Name administrators of the broker; administer all subscriptions.",
    "HISTORY": "See audit trail and rebuilds, and what was deleted.",
}


def _load(visit: Visit) -> dict[str, Any]:
    return {"rights": visit.api.get("/rights"), "allows": ALLOWS}


ACCOUNT = Page("/account", "account.html.jinja", "Account", _load)


# --- Actions that the user lacks the right to, named before they fail; the API alone decides ---

RESOURCES: Mapping[str, str] = {
    "broker": "the broker",
    "event_type": "this event type",
    "subscription": "this subscription",
}


REFUSALS: Mapping[str, str] = {
    "right": "",
    "scope": ", and a token with the scope for it",
    "blacklist": ", and no entry on the blacklist that forbids it",
    "read_only": ", while writing is not switched off",
}
"""The requirement in addition to the right, by what refuses the operation."""
WITHOUT_RIGHT: Mapping[str, str] = {
    "scope": "a token with the scope for it",
    "read_only": "writing to be switched on",
}
"""The requirement if all have the right, by what refuses the operation."""


def lacking(page: Page, visit: Visit) -> Mapping[str, str]:
    """Return what the user lacks for each action of the page; an empty text for nothing.

    Pages without actions do not ask the API.
    """
    needs = {name: action.needs for name, action in page.actions.items()}
    held = _held(visit) if any(needs.values()) else {}
    return {name: "" if needed is None else _lacking(needed, held) for name, needed in needs.items()}


def _lacking(needed: Right, held: Mapping[str, str]) -> str:
    outcome = held.get(needed.operation, "allowed")
    if needed.of_all and outcome in WITHOUT_RIGHT:
        return WITHOUT_RIGHT[outcome]
    return "" if outcome == "allowed" else f"{needed.name} of {RESOURCES[needed.of]}{REFUSALS[outcome]}"


def _held(visit: Visit) -> Mapping[str, str]:
    """The operations that concern the page, with what refuses them; none if that is not known."""
    named = {"event_type": visit.path.get("name"), "subscription_id": visit.path.get("id")}
    try:
        found: Mapping[str, str] = visit.api.get("/rights", **named)["operations"]
    except ApiProblem:
        return {}
    return found
