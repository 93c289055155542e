"""The floor under the cost of a request: the same HTTP server and framework, with nothing behind them.

`benchmarks.compare` runs it by gunicorn, with gevent's workers. It reads each body and answers 200, and answers
`rioni bench` when it asks for the event type.
"""

from typing import Any

import falcon


class AnyResource:
    """Takes every request."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        """Describe the event type that `rioni bench` asks for before it publishes."""
        resp.media = {"category": "business"}

    def on_post(self, req: falcon.Request, _resp: falcon.Response, **_: Any) -> None:
        """Read the body and answer 200, as publishing does."""
        req.bounded_stream.read()


app = falcon.App()
app.add_route("/event-types/{name}", AnyResource())
app.add_route("/event-types/{name}/events", AnyResource())
