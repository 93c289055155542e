"""The list of event types."""

from typing import Any

from rioni.console.pages.page import Page, Visit


PAGE = 50


def _load(visit: Visit) -> dict[str, Any]:
    wanted = {name: visit.params.get(name) for name in ("owning_application", "category", "label")}
    text = visit.params.get("q", "").strip()
    offset = int(visit.params.get("offset") or 0) if (visit.params.get("offset") or "0").isdecimal() else 0
    found = visit.api.get("/event-types", name=f"*{text}*" if text else None, limit=PAGE + 1, offset=offset, **wanted)
    return {"items": found[:PAGE], "offset": offset, "more": len(found) > PAGE, "page": PAGE}


EVENT_TYPES = Page("/event-types", "event_types.html.jinja", "Event types", _load)
