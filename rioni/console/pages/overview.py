"""The first page: how the broker is."""

from typing import Any

from rioni.console.pages.page import Page, Visit


def _load(visit: Visit) -> dict[str, Any]:
    return {
        "version": visit.api.attempt("/version"),
        "ready": visit.api.attempt("/readyz"),
        "changes": visit.api.attempt("/audit", limit=10),
    }


OVERVIEW = Page("/", "overview.html.jinja", "Overview", _load)
