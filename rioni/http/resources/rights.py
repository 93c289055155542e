"""`/rights`: what the caller may do (reference authorization#own-rights)."""

import falcon
import msgspec

from rioni.http.caller import subject_of
from rioni.http.resources.resource import Resource


class RightsResource(Resource):
    """The rights of the caller to the broker, and to an event type or a subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List them."""
        self._dependencies.registry.refresh()
        rights = self._dependencies.access.rights(
            subject_of(req), req.get_param("event_type"), req.get_param("subscription_id")
        )
        resp.data = msgspec.json.encode(rights)
