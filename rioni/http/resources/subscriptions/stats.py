"""`/subscriptions/{id}/stats`: partition assignment and consumer lag.

Source: reference subscriptions#partition-statistics.
"""

from typing import Any

import falcon
import orjson

from rioni.domain.errors import EventTypeNotFound
from rioni.domain.ports.coordinator import Assignment, Topology
from rioni.domain.subscriptions.lag import cursor_errors, partitions_of, unconsumed_of
from rioni.domain.subscriptions.starts import start_offsets
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.timelines.position import EventTypePartition
from rioni.http.dependencies import Dependencies
from rioni.http.resources.resource import Resource
from rioni.projections.queries.timeline_reader import ages_s, newest_consistent, offset_ranges_of


class SubscriptionStatsResource(Resource):
    """The statistics of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Show all partitions with their readers and their lag; with `show_time_lag` also in seconds.

        With `show_initial_lag` what waits for a subscription that was never streamed counts, too.
        """
        dependencies = self._dependencies
        dependencies.registry.refresh()
        subscription = dependencies.registry.subscription(subscription_id)
        topology = dependencies.coordinator.topology(subscription_id)
        cursors = dependencies.coordinator.cursors(subscription_id)
        event_types = {name: dependencies.registry.timelines(name) for name in subscription.event_types}
        with_ages, now_ms = req.get_param_as_bool("show_time_lag"), dependencies.clock.now_ms()
        unconsumed: dict[EventTypePartition, int] = {}
        ages: dict[EventTypePartition, int | None] = {}
        errors: dict[EventTypePartition, str] = {}
        if req.get_param_as_bool("show_initial_lag") and not cursors:
            # Read before the ends, which are then never behind them.
            cursors = {
                key: place
                for timelines in event_types.values()
                for key, place in start_offsets(
                    subscription, timelines.event_type, offset_ranges_of(timelines, dependencies.stores)
                ).items()
            }
        for timelines in event_types.values():
            newest = newest_consistent(timelines, dependencies.stores)
            found = unconsumed_of(timelines, newest, cursors)
            unconsumed |= found
            errors |= cursor_errors(timelines, newest, cursors)
            if with_ages:
                ages |= ages_s(timelines, dependencies.stores, found, cursors, now_ms)
        items = [
            {
                "event_type": name,
                "partitions": [
                    _assignment(topology, key, unconsumed.get(key), ages.get(key), errors.get(key))
                    for key in partitions_of(timelines)
                ],
            }
            for name, timelines in event_types.items()
        ]
        resp.data = orjson.dumps({"items": items})


def status_of(dependencies: Dependencies, subscription: Subscription) -> list[dict[str, Any]]:
    """The readers of all partitions, without their lag: the member `status` of a listed subscription."""
    topology = dependencies.coordinator.topology(subscription.id)
    items = []
    for name in subscription.event_types:
        try:
            timelines = dependencies.registry.timelines(name)
        except EventTypeNotFound:
            continue  # deleted a moment ago, and the subscription with it
        items.append(
            {"event_type": name, "partitions": [_assignment(topology, key) for key in partitions_of(timelines)]}
        )
    return items


def _assignment(
    topology: Topology,
    key: EventTypePartition,
    unconsumed: int | None = None,
    age_s: int | None = None,
    error: str | None = None,
) -> dict[str, Any]:
    """What is known of a partition, members in the order that clients know."""
    assignment = topology.partitions.get(key, Assignment())
    session = topology.sessions.get(assignment.session)
    members = {
        "partition": key.partition,
        "state": assignment.state,
        "unconsumed_events": unconsumed,
        "consumer_lag_seconds": age_s,
        "stream_id": assignment.session,
        "assignment_type": session and ("direct" if session.requested else "auto"),
        "cursor_error": error,
    }
    return {name: value for name, value in members.items() if value is not None}
