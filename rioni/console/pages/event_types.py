"""The list of event types, with the values that they can be narrowed by."""

from typing import Any

from rioni.console.charts import sparklines
from rioni.console.pages.example_event import FIRST, example
from rioni.console.pages.page import Page, Visit
from rioni.console.pages.paging import PAGE, offset_of, page


FILTERS = ("owning_application", "category", "cleanup_policy", "label", "unused_days")
FACETS = (("owning_application", "Owner"), ("category", "Category"), ("cleanup_policy", "Clean-up"), ("label", "Label"))
VALUES = 12
"""Values of each facet that are listed."""


def _load(visit: Visit) -> dict[str, Any]:
    text, offset = visit.params.get("q", "").strip(), offset_of(visit)
    wanted = {name: visit.params.get(name) for name in FILTERS} | {"name": f"*{text}*" if text else None}
    found = visit.api.get("/event-types", limit=PAGE + 1, offset=offset, **wanted)
    kept = {name: value for name, value in visit.params.items() if name in (*FILTERS, "q") and value}
    # They are counted now.
    facets = None if visit.as_of else visit.api.attempt("/event-type-facets", **wanted | {"limit": VALUES})
    shown = page(found, offset)
    rates = sparklines(visit, "published_events", "event_type", [each["name"] for each in shown["items"]])
    return shown | {
        "facets": facets,
        "shown_facets": FACETS,
        "kept": kept,
        "rates": rates,
        "first": FIRST,
        "event": example(FIRST),
    }


EVENT_TYPES = Page("/event-types", "event_types.html.jinja", "Event types", _load)
