"""`/filter-evaluations`: tries a filter on events (reference subscriptions#trying-filters)."""

from collections.abc import Mapping, Sequence
from typing import Any

import falcon
import msgspec
import orjson

from rioni.domain.avro.event_schema import schemas_in_json
from rioni.domain.errors import EventTypeNotFound, Invalid
from rioni.domain.event_types.event_type import EventType
from rioni.domain.schemas.effective_schema import EffectiveSchema
from rioni.domain.subscriptions.event_filter import ExplainedFilter, FilterResult
from rioni.domain.subscriptions.filter_check import check_filter, filter_warnings, newly_excluded
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import JSON_BYTES_MAX, read_json
from rioni.http.dependencies import Dependencies, Resource


EVENTS_MAX = 20
"""The maximum number of events, so that the parts of a filter take about a second at the most."""
EVENT_TYPES_MAX = 100
FILTERS_MAX = 50
"""How many filters of subscriptions to an event type are compared with a change of its schema."""
WARNINGS_MAX = 5


class FilterEvaluationsResource(Resource):
    """Whether events match a filter, and why."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Evaluate a filter; nothing is stored."""
        run = self._dependencies.evaluation_pool
        wanted, events, event_types = run(parsing.filter_evaluation, read_json(req, JSON_BYTES_MAX))
        if len(events) > EVENTS_MAX:
            raise Invalid(f"A request may have {EVENTS_MAX} events; this one has {len(events)}.")
        if len(event_types) > EVENT_TYPES_MAX:
            raise Invalid(f"A request may have {EVENT_TYPES_MAX} event types; this one has {len(event_types)}.")
        self._dependencies.registry.refresh()
        found = [self._dependencies.registry.event_type(name) for name in event_types]
        resp.data = orjson.dumps(run(_evaluated, wanted, events, found))


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
    """Add a header with the warnings for a subscription's filter, such as members that no schema declares."""
    if not expression:
        return
    dependencies.registry.refresh()
    warnings = dependencies.compute_pool(filter_warnings, expression, schemas_of(dependencies, event_types))
    if warnings:
        resp.set_header("Warning", ", ".join(map(warning, warnings)))


class SchemaChange:
    """Checks subscriptions' filters for members that a change of a schema excludes (reference #filter-check)."""

    def __init__(self, dependencies: Dependencies, name: str) -> None:
        """Begin before the change."""
        self._dependencies, self._name = dependencies, name
        self._before = self._event_type()

    def warnings(self) -> Sequence[str]:
        """The events that readers lose by the change that was made, as warnings; blocks until they are found."""
        self._dependencies.registry.refresh()
        before, after = self._before, self._event_type()
        if before is None or after is None or before.schema == after.schema:
            return []
        used: dict[str, str] = {}
        for each in self._dependencies.registry.subscriptions():
            if each.filter and self._name in each.event_types:
                # Names are any text, and this becomes a header.
                user = ascii(f"{each.owning_application}/{each.consumer_group}")[1:-1].replace('"', "'")
                used.setdefault(each.filter, user)
        if not used:
            return []
        return self._dependencies.compute_pool(_lost, dict(list(used.items())[:FILTERS_MAX]), before, after)

    def _event_type(self) -> EventType | None:
        try:
            return self._dependencies.registry.event_type(self._name)
        except EventTypeNotFound:
            return None


def _lost(used: Mapping[str, str], before: EventType, after: EventType) -> Sequence[str]:
    old, new = (schemas_in_json([each])[each.name] for each in (before, after))
    found = [
        f"the filter of {user} matches nothing: {error}"
        for expression, user in used.items()
        for error in newly_excluded(expression, after.name, old, new)
    ]
    return found[:WARNINGS_MAX]


def _evaluated(wanted: str, events: list[msgspec.Raw], event_types: Sequence[EventType]) -> dict[str, Any]:
    schemas = schemas_in_json(event_types)
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


def _shown(name: str, outcome: FilterResult) -> dict[str, Any]:
    return {name: outcome.is_wanted} | ({"failure": outcome.failure} if outcome.failure else {})
