"""`/stream-tickets`: lets a browser open a stream without a token in its address (reference streams#tickets)."""

import re
from urllib.parse import unquote

import falcon
import msgspec

from rioni.domain.errors import InvalidFields
from rioni.domain.timestamps import rfc3339
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.dependencies import Resource
from rioni.http.middleware.authentication import bearer_token
from rioni.http.middleware.base_path import without_base_path


STREAM_PATH = re.compile(r"/(event-types|subscriptions)/[^/?#]+/events")


class StreamTicketsResource(Resource):
    """Makes tickets."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Make a ticket for a stream; permission to read it is checked when the stream is opened."""
        path = without_base_path(parsing.stream_ticket(read_json(req)), req.root_path)
        if not STREAM_PATH.fullmatch(path):
            raise InvalidFields([("path", "must be /event-types/{name}/events or /subscriptions/{id}/events")])
        token = bearer_token(req.get_header("Authorization")) or ""
        ticket, expires_at_ms = self._dependencies.stream_tickets.issue(unquote(path), token)
        resp.status = falcon.HTTP_201
        resp.cache_control = ["no-store"]
        resp.data = msgspec.json.encode(
            {"ticket": ticket, "path": req.root_path + path, "expires_at": rfc3339(expires_at_ms)}
        )
