"""Pages of lists, by offset."""

from typing import Any

from rioni.console.pages.page import Visit


PAGE = 50


def offset_of(visit: Visit) -> int:
    """Where the page begins; 0 where the query does not say it."""
    text = visit.params.get("offset", "")
    return int(text) if text.isdecimal() and len(text) < 10 else 0  # noqa: PLR2004 - no list is that long


def page(items: list[Any], offset: int) -> dict[str, Any]:
    """A page of a list of which one item more was asked for than is shown."""
    return {"items": items[:PAGE], "offset": offset, "more": len(items) > PAGE, "page": PAGE}
