"""What the user may not do on a page, said before it fails. Whether it may be done, the API alone decides."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from rioni.console.api import ApiProblem
from rioni.console.pages.page import Page, Visit


RESOURCES: Mapping[str, str] = {
    "broker": "the broker",
    "event_type": "this event type",
    "subscription": "this subscription",
}


def lacking(page: Page, visit: Visit) -> Callable[[str], str]:
    """Return a function that names the right that the user lacks for an action of the page; an empty text for none.

    The API is asked at the first such question, so pages without actions don't ask.
    """
    held = functools.cache(functools.partial(_held, visit))

    def lacks(action: str) -> str:
        needed = page.actions[action].needs
        if needed is None or needed.name in held().get(needed.of, (needed.name,)):
            return ""
        return f"{needed.name} of {RESOURCES[needed.of]}"

    return lacks


def _held(visit: Visit) -> Mapping[str, Any]:
    """The rights of the user; without those that are unknown, such as while everybody may do everything."""
    if not visit.api.has_token:
        return {}
    named = {"event_type": visit.path.get("name"), "subscription_id": visit.path.get("id")}
    try:
        found: Mapping[str, Any] = visit.api.get("/rights", **named)
    except ApiProblem:
        return {}
    return found
