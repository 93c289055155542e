"""What a page of the console is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple

from rioni.console.api import Answer, Api, ApiProblem, Compute, in_place
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
    """What was sent with a change."""
    as_of: str | None = None
    """The moment that the console shows; None for now."""
    outcome: dict[str, Any] = field(default_factory=dict)
    """What an action that stays on the page has found, for `load` to show."""
    compute: Compute = in_place
    """Where comparisons of long texts run."""

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
    """The outcome of a change: where the browser goes, and what it is told there."""

    notice: str
    path: str = ""
    """Below `/console`; empty for the same page."""


def with_warnings(notice: str, answer: Answer) -> str:
    """What the user is told of a change, and what the API warns of."""
    if not (found := answer.warnings):
        return notice
    return f"{notice}. {'Warning' if len(found) == 1 else f'{len(found)} warnings'}: {'; '.join(found)}"


Load = Callable[[Visit], dict[str, Any]]
"""Loads what a page shows: JSON, which `?format=json` answers as it is. Raises ApiProblem."""


class Right(NamedTuple):
    """A right to an operation, as `GET /rights` names both."""

    of: str
    """`broker`, or that which the path names: `event_type` or `subscription`."""
    name: str
    """Such as `ADMIN`."""
    operation: str
    """What the action asks the API for, as `GET /rights` names it."""
    of_all: bool = False
    """Whether all have it but a few, so that it is named only to those."""


@dataclass(frozen=True)
class Action:
    """What a form of a page does."""

    act: Callable[[Visit], Done | None]
    """Makes a change, with `visit.form`; None shows the same page, with what was typed.

    Raises ApiProblem, which the page then shows above the form.
    """
    needs: Right | None
    """Without it the form is disabled; None if everybody may do it."""


@dataclass(frozen=True)
class Page:
    """A page at a path below `/console`."""

    path: str
    template: str
    title: str
    """May name members of the path in braces."""
    load: Load
    actions: Mapping[str, Action] = field(default_factory=dict)
    """By the value of the member `action` of the form."""


# --- Pages of lists, by offset ---

PAGE = 50


def offset_of(visit: Visit) -> int:
    """Where the page begins; 0 where the query does not say it."""
    return number_of(visit.params, "offset")


def number_of(values: Mapping[str, str], name: str) -> int:
    """A number of a query or a form; 0 where it is not said, or not one."""
    text = values.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004 - nothing counts that far


def page(items: list[Any], offset: int) -> dict[str, Any]:
    """A page of a list of which one item more was asked for than is shown."""
    return {"items": items[:PAGE], "offset": offset, "more": len(items) > PAGE, "page": PAGE}
