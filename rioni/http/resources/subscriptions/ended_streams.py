"""`/subscriptions/{id}/ended-streams`: why streams ended (reference streams#ended-streams)."""

import falcon
import orjson

from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.activity import END
from rioni.domain.timestamps import rfc3339
from rioni.http.resources.clients import client_members
from rioni.http.resources.resource import Resource


_ENDS = {END + reason.label: reason.label for reason in Reason}


class EndedStreamsResource(Resource):
    """The ended streams of one subscription."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Count them by client and reason, those that ended last first."""
        self._dependencies.registry.refresh()
        self._dependencies.registry.subscription(subscription_id)
        ends = self._dependencies.activity.of_any(_ENDS, subscription_id)
        items = [
            {
                **client_members(key.client),
                "reason": _ENDS[key.action],
                "count": seen.amount,
                "first_at": rfc3339(seen.first_ms),
                "last_at": rfc3339(seen.last_ms),
            }
            for key, seen in sorted(ends.items(), key=lambda end: (-end[1].last_ms, end[0]))
        ]
        resp.data = orjson.dumps({"items": items})
