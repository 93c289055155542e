"""`/filter-evaluations`: tries a filter on events (reference subscriptions#trying-filters)."""

from typing import Any

import falcon
import msgspec
import orjson

from rioni.domain.errors import Invalid
from rioni.domain.subscriptions.filter_explanation import ExplainedFilter
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import JSON_BYTES_MAX, read_json
from rioni.http.resources.resource import Resource


EVENTS_MAX = 20
"""So that the parts of a filter take about a second at the most."""


class FilterEvaluationsResource(Resource):
    """Whether events match a filter, and why."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Evaluate a filter; nothing is stored."""
        wanted, events = parsing.filter_evaluation(read_json(req, JSON_BYTES_MAX))
        if len(events) > EVENTS_MAX:
            raise Invalid(f"There may be {EVENTS_MAX} events, and there are {len(events)}.")
        resp.data = orjson.dumps({"items": self._dependencies.compute_pool(_evaluated, wanted, events)})


def _evaluated(wanted: str, events: list[msgspec.Raw]) -> list[dict[str, Any]]:
    compiled = ExplainedFilter(wanted)
    return [
        {
            "matches": compiled.matches(bytes(event)),
            "parts": [{"expression": part, "value": value} for part, value in compiled.explain(bytes(event))],
        }
        for event in events
    ]
