"""`/subscriptions/{id}/events`: streaming a subscription (consumption contract 8)."""

from typing import Any
from uuid import uuid4

import falcon

from rioni.domain.errors import Malformed
from rioni.domain.ports import EventTypePartition
from rioni.domain.streaming.parameters import check_partitions, subscription_parameters
from rioni.http import bodies
from rioni.http.metrics import Metrics
from rioni.http.requests import read_body, subject_of
from rioni.http.services import Services
from rioni.http.streaming.opening import Meter, client_of, respond, sources_of, stream_limits
from rioni.http.streaming.pump import SubscriptionStream
from rioni.http.subscription_cursors import STREAM_ID_HEADER


class SubscriptionEventsResource:
    """The events of one subscription."""

    def __init__(self, services: Services, metrics: Metrics) -> None:
        self._services = services
        self._metrics = metrics

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Stream, with parameters from the query; partitions are assigned automatically."""
        query: dict[str, Any] = {name: value for name, value in req.params.items() if name != "partitions"}
        self._stream(req, resp, subscription_id, query)

    def on_post(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Stream, with parameters from the body."""
        body = bodies.json_body(read_body(req, self._services.config.body_bytes_max))
        if not isinstance(body, dict):
            raise Malformed("the body must be object")
        self._stream(req, resp, subscription_id, body)

    def _stream(self, req: falcon.Request, resp: falcon.Response, subscription_id: str, wishes: dict[str, Any]) -> None:
        services, subject = self._services, subject_of(req)
        parameters = subscription_parameters(wishes, stream_limits(services))
        services.registry.refresh()
        subscription = services.registry.subscription(subscription_id)
        services.gate.blacklist("CONSUMER", subject, subscription.event_types)
        sources = {
            EventTypePartition(name, str(source.partition)): source
            for name in subscription.event_types
            for source in sources_of(services, name)
        }
        check_partitions(parameters.partitions, sources)

        def check() -> None:
            subscription = services.gate.subscription(subject, subscription_id)
            services.gate.blacklist("CONSUMER", subject, subscription.event_types)
            for name in subscription.event_types:
                services.gate.event_type(subject, name, "READ")

        check()
        services.positions.initialise(subscription)
        stream_id = str(uuid4())
        services.coordinator.join(subscription_id, stream_id, parameters.partitions)
        client = client_of(req, services, check, Meter(self._metrics, "subscription"))
        resp.set_header(STREAM_ID_HEADER, stream_id)
        ports = services.stream_ports()
        respond(req, resp, SubscriptionStream(subscription_id, stream_id, parameters, sources, ports, client))
