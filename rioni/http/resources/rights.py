"""`/rights`: what the caller may do (reference authorization#own-rights)."""

import falcon
import msgspec

from rioni.http.caller import caller_of
from rioni.http.operations import allowed_operations
from rioni.http.resources.resource import Resource


class RightsResource(Resource):
    """What the caller may do with the broker, and with an event type or a subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        self._dependencies.registry.refresh()
        found = allowed_operations(
            self._dependencies.access, caller_of(req), req.get_param("event_type"), req.get_param("subscription_id")
        )
        resp.data = msgspec.json.encode(found)
