"""Notices who publishes, streams and commits, so that an event type can show its producers and consumers."""

import falcon

from rioni.commands.publishing import Published
from rioni.domain.activity import COMMIT, PUBLISH, resource_of
from rioni.domain.errors import EventTypeNotFound
from rioni.http.requests import subject_of
from rioni.http.services import Services


def notice_publishing(req: falcon.Request, services: Services, event_type: str, published: Published) -> None:
    """Notice that events, or deletions, were stored."""
    if published.events:
        try:
            resource = resource_of(services.registry.event_type(event_type))
        except EventTypeNotFound:
            return  # It was deleted meanwhile.
        services.attendance.notice(PUBLISH, resource, subject_of(req).name, published.events)


def notice_commit(req: falcon.Request, services: Services, subscription_id: str, cursors: int) -> None:
    """Notice that so many cursors were advanced."""
    services.attendance.notice(COMMIT, subscription_id, subject_of(req).name, cursors)
