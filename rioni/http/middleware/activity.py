"""Records publishing, streaming and committing clients, for the lists of producers and consumers."""

import falcon

from rioni.commands.publishing.publisher import Published
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.subscriptions.activity import COMMIT, PUBLISH, resource_of
from rioni.http.dependencies import Dependencies
from rioni.http.request_parsing import subject_of


def notice_publishing(req: falcon.Request, dependencies: Dependencies, event_type: str, published: Published) -> None:
    """Record that events, or tombstones, were stored."""
    if published.events:
        try:
            resource = resource_of(dependencies.registry.event_type(event_type))
        except EventTypeNotFound:
            return  # It was deleted meanwhile.
        dependencies.activity.record(PUBLISH, resource, subject_of(req).name, published.events)


def notice_commit(req: falcon.Request, dependencies: Dependencies, subscription_id: str, cursors: int) -> None:
    """Record the number of advanced cursors."""
    dependencies.activity.record(COMMIT, subscription_id, subject_of(req).name, cursors)
