"""The parts that a page of the console is made of, and the rights of its user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from rioni.console.api import Api, ApiAnswer, ApiProblem, Compute, in_place
from rioni.console.exact_json import seen


@dataclass(frozen=True)
class Visit:
    """A request of a browser for a page."""

    api: Api
    path: Mapping[str, str]
    """Names in the path, such as that of an event type."""
    params: Mapping[str, str]
    """The query, of which the first value of a name counts."""
    form: Mapping[str, str] = field(default_factory=dict)
    """The form that was sent with a change."""
    as_of: str | None = None
    """The moment that the console shows; None for now."""
    outcome: dict[str, Any] = field(default_factory=dict)
    """The results of an action that stays on the page, for `load` to show."""
    compute: Compute = in_place
    """The function that runs comparisons of long texts."""

    def typed(self, name: str) -> str:
        """A text of several lines as it was typed: browsers without scripts send CRLF at the end of each line."""
        return self.form.get(name, "").replace("\r\n", "\n")

    def refuse_changed(self, value: Any, problem: str) -> None:
        """Raise ApiProblem if the form was made of another value: what happened meanwhile is not undone in silence."""
        if self.form.get("seen", expected := seen(value)) != expected:
            detail = f"{problem} Load the page again before you change it; what you typed is still here."
            raise ApiProblem(HTTPStatus.PRECONDITION_FAILED, {"title": "Changed meanwhile", "detail": detail})


@dataclass(frozen=True)
class Done:
    """The outcome of a change: where the browser goes, and the notice that it shows there."""

    notice: str
    path: str = ""
    """Below `/console`; empty for the same page."""


def with_warnings(notice: str, answer: ApiAnswer) -> str:
    """The notice for the user about a change, with the warnings of the API."""
    if not (found := answer.warnings):
        return notice
    return f"{notice}. {'Warning' if len(found) == 1 else f'{len(found)} warnings'}: {'; '.join(found)}"


Load = Callable[[Visit], dict[str, Any]]
"""Loads the data of a page: JSON, which `?format=json` answers as it is. Raises ApiProblem."""


class Right(NamedTuple):
    """A right to an operation, as `GET /rights` names both."""

    of: str
    """`broker`, or that which the path names: `event_type` or `subscription`."""
    name: str
    """The name of the right, such as `ADMIN`."""
    operation: str
    """The operation that the action asks the API for, as `GET /rights` names it."""
    of_all: bool = False
    """Whether all have it but a few, so that it is named only to those."""


@dataclass(frozen=True)
class PageAction:
    """The action of a form of a page."""

    act: Callable[[Visit], Done | None]
    """Makes a change, with `visit.form`; None shows the same page, with the texts that were typed.

    Raises ApiProblem, which the page then shows above the form.
    """
    needs: Right | None
    """The right without which the form is disabled; None if everybody may do it."""


@dataclass(frozen=True)
class ConsolePage:
    """A page at a path below `/console`."""

    path: str
    template: str
    title: str
    """May name members of the path in braces."""
    load: Load
    actions: Mapping[str, PageAction] = field(default_factory=dict)
    """The actions, by the value of the member `action` of the form."""


# --- Pages of lists, by offset ---

PAGE = 50


def offset_of(visit: Visit) -> int:
    """The offset at which the page begins; 0 if the query does not name it."""
    return number_of(visit.params, "offset")


def number_of(values: Mapping[str, str], name: str) -> int:
    """A number of a query or a form; 0 if it is missing, or not a number."""
    text = values.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004 - nothing counts that far


def page(items: list[Any], offset: int) -> dict[str, Any]:
    """A page of a list of which one item more was asked for than is shown."""
    return {"items": items[:PAGE], "offset": offset, "more": len(items) > PAGE, "page": PAGE}


# --- The user, and the user's rights ---

ALLOWS = {
    "READ": "See settings, storages, timelines and nodes; read all event types and subscriptions.",
    "WRITE": "Change features, blacklist, storages, timelines, partitions; publish to and administer all event types.",
    "ADMIN": "Name administrators of the broker; administer all subscriptions.",
    "HISTORY": "See audit trail and rebuilds, and what was deleted.",
}


def _load(visit: Visit) -> dict[str, Any]:
    return {"rights": visit.api.get("/rights"), "allows": ALLOWS}


ACCOUNT = ConsolePage("/account", "account.html.jinja", "Account", _load)


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


def lacking(page: ConsolePage, visit: Visit) -> Mapping[str, str]:
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
