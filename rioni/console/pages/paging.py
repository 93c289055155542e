"""Pages of lists, by offset."""

from collections.abc import Mapping
from typing import Any

from rioni.console.pages.page import Visit


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
