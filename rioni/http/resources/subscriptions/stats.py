"""`/subscriptions/{id}/stats`: partition assignment and consumer lag.

Source: reference subscriptions#partition-statistics.
"""

import contextlib
from collections.abc import Mapping
from typing import Any

import falcon
import orjson

from rioni.domain.errors import EventTypeNotFound, NotFound, Unavailable
from rioni.domain.ports.coordinator import Assignment, Topology
from rioni.domain.subscriptions.lag import committed_place, cursor_errors, partitions_of, unconsumed_of
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition
from rioni.domain.timelines.timeline import Timelines
from rioni.http.dependencies import Dependencies
from rioni.http.resources.resource import Resource
from rioni.projections.queries.timeline_reader import newest_consistent, recorded_at_ms_after


class SubscriptionStatsResource(Resource):
    """The statistics of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Show all partitions with their readers and their lag; with `show_time_lag` also in seconds."""
        dependencies = self._dependencies
        dependencies.registry.refresh()
        subscription = dependencies.registry.subscription(subscription_id)
        topology = dependencies.coordinator.topology(subscription_id)
        cursors = dependencies.coordinator.cursors(subscription_id)
        event_types = {name: dependencies.registry.timelines(name) for name in subscription.event_types}
        unconsumed: dict[EventTypePartition, int] = {}
        errors: dict[EventTypePartition, str] = {}
        for timelines in event_types.values():
            newest = newest_consistent(timelines, dependencies.stores)
            unconsumed.update(unconsumed_of(timelines, newest, cursors))
            errors.update(cursor_errors(timelines, newest, cursors))
        ages_s: dict[EventTypePartition, int | None] = {}
        if req.get_param_as_bool("show_time_lag"):
            behind = {key: committed_place(cursors[key]) for key, count in unconsumed.items() if count}
            ages_s |= dict.fromkeys(unconsumed, 0)
            ages_s |= self._ages_s(event_types, behind)
        items = [
            {
                "event_type": name,
                "partitions": [
                    _assignment(topology, key, unconsumed.get(key), ages_s.get(key), errors.get(key))
                    for key in partitions_of(timelines)
                ],
            }
            for name, timelines in event_types.items()
        ]
        resp.data = orjson.dumps({"items": items})

    def _ages_s(
        self, event_types: Mapping[str, Timelines], places: Mapping[EventTypePartition, TimelinePosition]
    ) -> dict[EventTypePartition, int | None]:
        """Age of the next events, None where unknown.

        NOTE: stores leave the hub by themselves, and may begin to follow a topic: not to be run in a pool as a whole.
        """
        now_ms = self._dependencies.clock.now_ms()
        ages_s: dict[EventTypePartition, int | None] = dict.fromkeys(places)
        for key, place in places.items():
            # PERF: one lookup in an index for each partition, 16 us; the events themselves are not read.
            with contextlib.suppress(Unavailable, NotFound):
                timelines = event_types[key.event_type]
                at_ms = recorded_at_ms_after(timelines, self._dependencies.stores, int(key.partition), place)
                ages_s[key] = 0 if at_ms is None else max(0, (now_ms - at_ms) // 1_000)
        return ages_s


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
