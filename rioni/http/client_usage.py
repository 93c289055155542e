"""Records what clients publish and commit: for KPI events, and for the lists of producers and consumers.

Source: reference system-event-types#kpi-event-types.
"""

import falcon

from rioni.commands.publishing.publisher import Published
from rioni.domain.errors import EventTypeNotFound
from rioni.domain.subscriptions.activity import COMMIT, PUBLISH, resource_of
from rioni.domain.system.kpis import BatchPublished
from rioni.http.caller import subject_of
from rioni.http.dependencies import Dependencies
from rioni.http.middleware.access_log import ms_spent


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


def measure_publishing(
    req: falcon.Request, dependencies: Dependencies, event_type: str, published: Published, body_bytes: int
) -> None:
    """Report a batch that was stored as a whole, or tombstones."""
    if published.rejected or published.partly or not dependencies.usage.on:
        return
    subject = subject_of(req)
    measurement = BatchPublished(
        at_ms=dependencies.clock.now_ms(),
        event_type=event_type,
        app=subject.name,
        token_realm=subject.realm,
        number_of_events=published.events,
        ms_spent=ms_spent(req),
        batch_size=body_bytes,
    )
    dependencies.usage.published(measurement)
