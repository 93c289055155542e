"""`/filter-evaluations`: tries a filter on events (reference subscriptions#trying-filters)."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon
import msgspec
import orjson

from rioni.domain.avro.as_json_schema import schemas_in_json
from rioni.domain.errors import Invalid
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.subscriptions.event_filter import Outcome
from rioni.domain.subscriptions.filter_check import check_filter, filter_warnings
from rioni.domain.subscriptions.filter_explanation import ExplainedFilter
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import JSON_BYTES_MAX, read_json
from rioni.http.dependencies import Dependencies
from rioni.http.resources.resource import Resource


EVENTS_MAX = 20
"""So that the parts of a filter take about a second at the most."""
EVENT_TYPES_MAX = 100


class FilterEvaluationsResource(Resource):
    """Whether events match a filter, and why."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Evaluate a filter; nothing is stored."""
        wanted, events, event_types = parsing.filter_evaluation(read_json(req, JSON_BYTES_MAX))
        if len(events) > EVENTS_MAX:
            raise Invalid(f"There may be {EVENTS_MAX} events, and there are {len(events)}.")
        if len(event_types) > EVENT_TYPES_MAX:
            raise Invalid(f"There may be {EVENT_TYPES_MAX} event types, and there are {len(event_types)}.")
        schemas = schemas_of(self._dependencies, event_types)
        resp.data = orjson.dumps(self._dependencies.compute_pool(_evaluated, wanted, events, schemas))


def schemas_of(dependencies: Dependencies, event_types: Sequence[str]) -> Mapping[str, EffectiveSchema | None]:
    """The schemas of event types; raises EventTypeNotFound."""
    found = [dependencies.registry.event_type(name) for name in event_types]
    return dependencies.compute_pool(schemas_in_json, found)


def warning(text: str) -> str:
    """The value of a header for a warning."""
    return f'299 rioni "{text.encode("ascii", "backslashreplace").decode()}"'.replace("\n", " ")


def warn_of_filter(
    resp: falcon.Response, dependencies: Dependencies, expression: str | None, event_types: Sequence[str]
) -> None:
    """Add a header with what a subscription's filter asks for and no schema declares."""
    if not expression:
        return
    dependencies.registry.refresh()
    warnings = dependencies.compute_pool(filter_warnings, expression, schemas_of(dependencies, event_types))
    if warnings:
        resp.set_header("Warning", ", ".join(map(warning, warnings)))


def _evaluated(wanted: str, events: list[msgspec.Raw], schemas: Mapping[str, EffectiveSchema | None]) -> dict[str, Any]:
    compiled = ExplainedFilter(wanted)
    return {"items": _items(compiled, events), "warnings": check_filter(wanted, schemas)}


def _items(compiled: ExplainedFilter, events: list[msgspec.Raw]) -> list[dict[str, Any]]:
    return [
        {
            **_shown("matches", compiled.outcome(bytes(event))),
            "parts": [
                {"expression": part, **({"value": None} if outcome is None else _shown("value", outcome))}
                for part, outcome in compiled.explain(bytes(event))
            ],
        }
        for event in events
    ]


def _shown(name: str, outcome: Outcome) -> dict[str, Any]:
    return {name: outcome.is_wanted} | ({"failure": outcome.failure} if outcome.failure else {})
