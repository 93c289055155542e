"""`/event-type-facets`: how many event types there are of each owner, category, clean-up policy and label."""

import falcon
import msgspec

from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.facets import facets_of
from rioni.domain.event_types.filters import EventTypeFilter, matcher
from rioni.http.event_type_selection import filter_from, unused_days_from, unused_for
from rioni.http.history import as_of
from rioni.http.request_parsing import integer_within
from rioni.http.resources.resource import Resource
from rioni.projections.queries.event_types import past_event_types
from rioni.projections.queries.past import Moment


VALUES_MAX = 1_000
VALUES_DEFAULT = 100
UNUSED_DAYS_DEFAULT = 30


class EventTypeFacetsResource(Resource):
    """Counts of the event types that match the filters of the list."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Count them; those of the present also by whether clients use them."""
        wanted, days, limit = filter_from(req), unused_days_from(req), _limit(req)
        at = as_of(req, resp, self._dependencies)
        found = self._matching(wanted, at)
        answer = {}
        if at is None:
            of_days = days or UNUSED_DAYS_DEFAULT
            unused = unused_for(of_days, found, self._dependencies)
            answer = {"unused": {"days": of_days, "count": len(unused)}}
            found = found if days is None else unused
        facets = self._dependencies.compute_pool(facets_of, found, limit)
        resp.data = msgspec.json.encode({"total": len(found), **facets, **answer})

    def _matching(self, wanted: EventTypeFilter, at: Moment | None) -> list[EventType]:
        dependencies = self._dependencies
        if at is None:
            dependencies.registry.refresh()
            event_types = dependencies.registry.event_types()
        else:
            event_types = dependencies.query(past_event_types, at)
        return dependencies.compute_pool(lambda: [*filter(matcher(wanted), event_types)])


def _limit(req: falcon.Request) -> int:
    return integer_within(req, "limit", VALUES_DEFAULT, 1, VALUES_MAX)
