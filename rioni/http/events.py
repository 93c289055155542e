"""`/event-types/{name}/events`: publishing, and the low-level stream (registry contract 6, consumption contract 4)."""

from http import HTTPStatus

import falcon
import msgspec

from rioni.commands.publishing import PublishEvents
from rioni.http.metrics import Metrics
from rioni.http.requests import read_body, subject_of
from rioni.http.services import Services
from rioni.http.streaming.low_level import Slots, open_low_level_stream


class EventsResource:
    """The events of one event type."""

    def __init__(self, services: Services, metrics: Metrics) -> None:
        self._services = services
        self._metrics = metrics
        self._slots = Slots(services.config.streams_per_partition_max)

    def on_post(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Publish a batch: 200 and nothing more if it is stored, 422 with a result for each event if it is refused."""
        body = read_body(req, self._services.config.body_bytes_max)
        command = PublishEvents(event_type=name, body=body, flow_id=req.context.flow_id)
        published = self._services.publisher.publish(command, subject_of(req))
        if published.refused:
            self._metrics.refused_batches.labels(name).inc()
            resp.status = HTTPStatus.UNPROCESSABLE_ENTITY.value
            resp.data = msgspec.json.encode(published.refused)
            return
        self._metrics.published_events.labels(name).inc(published.events)
        self._metrics.published_bytes.labels(name).inc(len(body))

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """Stream events of some or all partitions."""
        open_low_level_stream(req, resp, name, self._services, self._metrics, self._slots)
