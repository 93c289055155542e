"""Renders pages from their data, as the console does."""

from collections.abc import Mapping
from typing import Any

from rioni.console.api import ApiProblem
from rioni.console.app import SECTIONS
from rioni.console.pages.page import ConsolePage, Visit
from rioni.console.rendering import curl, render, url
from rioni.console.sessions import LoginSession


def rendered(
    page: ConsolePage, visit: Visit, data: Mapping[str, Any], *, notice: str = "", refused: ApiProblem | None = None
) -> str:
    """The text of a page with these data, for a user without any right."""
    context = {
        "title": page.title.format(**visit.path),
        "sections": SECTIONS,
        "curl": lambda *request: curl("http://broker", *request, token=False),
        "url": lambda path, /, **params: url("", path, visit.as_of, **params),
        "visit": visit,
        "session": LoginSession.new("token").telling(notice),
        "here": "/",
        "refused": refused,
        "lacks": lambda action: "ADMIN of the broker" if page.actions[action].needs else "",
        "data": data,
    }
    return render(page.template, "", context)
