"""`/subscriptions/{id}/streams/{stream id}`: the open streams of a subscription; an extension of the API."""

from http import HTTPStatus

import falcon

from rioni.domain.errors import NotFound
from rioni.http.dependencies import Dependencies
from rioni.http.request_parsing import subject_of


class SubscriptionStreamResource:
    """One open stream, on any worker process."""

    def __init__(self, services: Dependencies) -> None:
        self._services = services

    def on_delete(self, req: falcon.Request, resp: falcon.Response, subscription_id: str, stream_id: str) -> None:
        """Close a stream: its slot and partitions are free when this is answered; its client gets a final message.

        Clients that may commit for it may close it: readers of the subscription that know the stream's id.
        """
        services = self._services
        services.registry.refresh()
        services.gate.subscription(subject_of(req), subscription_id)
        if stream_id not in services.coordinator.topology(subscription_id).sessions:
            raise NotFound(f"Session with stream id {stream_id} not found")
        services.coordinator.leave(subscription_id, stream_id)
        resp.status = HTTPStatus.NO_CONTENT.value
