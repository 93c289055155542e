"""`/subscriptions/{id}/stats`: who reads which partition, and how far behind (consumption contract 6)."""

from collections.abc import Iterator
from typing import Any

import falcon
import orjson

from rioni.domain.cursor import parse_offset
from rioni.domain.ports import Assignment, Bounds, EventTypePartition, Topology
from rioni.domain.subscription import Subscription
from rioni.domain.timeline import FIRST_ORDER, Timeline
from rioni.http.services import Services


class SubscriptionStatsResource:
    """The statistics of one subscription."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Show all partitions with their readers and their lag; with `show_time_lag` also in seconds."""
        services = self._services
        services.registry.refresh()
        subscription = services.registry.subscription(subscription_id)
        time_lag = req.get_param_as_bool("show_time_lag") or False
        topology = services.coordinator.topology(subscription_id)
        cursors = services.coordinator.cursors(subscription_id)
        items = []
        for name in subscription.event_types:
            timeline = services.registry.timelines(name).active
            bounds = services.store.bounds(timeline.topic)
            partitions = []
            for partition in _partition_ids(timeline):
                key = EventTypePartition(name, partition)
                lag = self._lag(timeline, partition, bounds[int(partition)], cursors.get(key), time_lag=time_lag)
                partitions.append(_assignment(topology, key) | lag)
            items.append({"event_type": name, "partitions": partitions})
        resp.data = orjson.dumps({"items": items})

    def _lag(
        self, timeline: Timeline, partition: str, bounds: Bounds, committed: str | None, *, time_lag: bool
    ) -> dict[str, int]:
        """How far a partition is behind; unknown as long as the subscription was never streamed."""
        if committed is None:
            return {}
        first = _first_unconsumed(committed, timeline, bounds)
        lag = {"unconsumed_events": bounds.newest + 1 - first}
        if time_lag:
            lag["consumer_lag_seconds"] = _lag_s(self._services, timeline, int(partition), first)
        return lag


def status_of(services: Services, subscription: Subscription) -> list[dict[str, Any]]:
    """The readers of all partitions, without their lag: the member `status` of a listed subscription."""
    topology = services.coordinator.topology(subscription.id)
    return [
        {
            "event_type": name,
            "partitions": [
                _assignment(topology, EventTypePartition(name, partition))
                for partition in _partition_ids(services.registry.timelines(name).active)
            ],
        }
        for name in subscription.event_types
    ]


def _partition_ids(timeline: Timeline) -> Iterator[str]:
    return iter(sorted(map(str, range(timeline.partitions))))


def _first_unconsumed(offset: str, timeline: Timeline, bounds: Bounds) -> int:
    """The first position that is not committed; events that retention has removed still count."""
    place = parse_offset(offset, partition="", oldest_order=FIRST_ORDER)
    if place is None or place.order != timeline.order:
        return bounds.oldest
    return min(place.position, bounds.newest) + 1


def _lag_s(services: Services, timeline: Timeline, partition: int, first: int) -> int:
    chunks = services.store.read(timeline.topic, partition, first, 1)
    if not chunks:
        return 0
    return max(0, (services.clock.now_ms() - chunks[0].recorded_at_ms) // 1_000)


def _assignment(topology: Topology, key: EventTypePartition) -> dict[str, Any]:
    assignment = topology.partitions.get(key, Assignment())
    item: dict[str, Any] = {
        "partition": key.partition,
        "state": assignment.state,
        "stream_id": assignment.session,
    }
    if (session := topology.sessions.get(assignment.session)) is not None:
        item["assignment_type"] = "direct" if session.requested else "auto"
    return item
