"""The list of event types."""

from typing import Any

from rioni.console.pages.page import Page, Visit
from rioni.console.pages.paging import PAGE, offset_of, page


def _load(visit: Visit) -> dict[str, Any]:
    wanted = {name: visit.params.get(name) for name in ("owning_application", "category", "label")}
    text, offset = visit.params.get("q", "").strip(), offset_of(visit)
    found = visit.api.get("/event-types", name=f"*{text}*" if text else None, limit=PAGE + 1, offset=offset, **wanted)
    return page(found, offset)


EVENT_TYPES = Page("/event-types", "event_types.html.jinja", "Event types", _load)
