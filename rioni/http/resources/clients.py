"""`/event-types/{name}/consumers` and `/producers`: clients of an event type, and when they were last seen.

As an event type itself, they are visible to all authenticated clients.
"""

from collections.abc import Mapping
from typing import Any

import falcon
import orjson

from rioni.domain.access.authorization import name_and_realm
from rioni.domain.subscriptions.cursor_arithmetic import start_offsets
from rioni.domain.subscriptions.lag import partitions_of, unconsumed_of
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.client_activity import COMMIT, PUBLISH, READ, STREAM, LastActivity, resource_of
from rioni.domain.timestamps import rfc3339
from rioni.http.dependencies import Resource
from rioni.projections.queries.timeline_reader import ages_s, newest_consistent, offset_ranges_of


class ProducersResource(Resource):
    """The publishers of an event type."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List clients by name."""
        self._dependencies.registry.refresh()
        seen = self._dependencies.activity.of(PUBLISH, resource_of(self._dependencies.registry.event_type(name)))
        items = [
            {**client_members(client), "last_published_at": rfc3339(each.last_ms), **_count(each)}
            for client, each in seen.items()
        ]
        resp.data = orjson.dumps({"items": items})


class ConsumersResource(Resource):
    """The consumers of an event type."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        """List the subscriptions, with their lag and their clients, and the clients of the low-level API.

        With `show_time_lag` the lag is also in seconds.
        """
        with_ages = bool(req.get_param_as_bool("show_time_lag"))
        dependencies = self._dependencies
        dependencies.registry.refresh()
        event_type = dependencies.registry.event_type(name)
        subscribed = [each for each in dependencies.registry.subscriptions() if name in each.event_types]
        subscribed.sort(key=lambda each: (each.owning_application, each.consumer_group, each.id))
        readers = dependencies.activity.of(READ, resource_of(event_type))
        answer = {
            "subscriptions": self._subscriptions(name, subscribed, with_ages=with_ages),
            "low_level": [
                {**client_members(client), "last_read_at": rfc3339(each.last_ms), **_count(each)}
                for client, each in readers.items()
            ],
        }
        resp.data = orjson.dumps(answer)

    def _subscriptions(self, name: str, subscribed: list[Subscription], *, with_ages: bool) -> list[dict[str, Any]]:
        dependencies = self._dependencies
        timelines = dependencies.registry.timelines(name)
        # Starts are read first, so they are never beyond the ends.
        ranges = offset_ranges_of(timelines, dependencies.stores)
        newest = newest_consistent(timelines, dependencies.stores)
        now_ms = dependencies.clock.now_ms()
        items = []
        for subscription in subscribed:
            cursors = dependencies.coordinator.cursors(subscription.id)
            if not cursors:
                cursors = start_offsets(subscription, name, ranges)
            unconsumed = unconsumed_of(timelines, newest, cursors)
            ages = ages_s(timelines, dependencies.stores, unconsumed, cursors, now_ms) if with_ages else {}
            partitions = {
                key.partition: {"unconsumed_events": unconsumed.get(key), "consumer_lag_seconds": ages.get(key)}
                for key in partitions_of(timelines)
            }
            item = {
                "id": subscription.id,
                "owning_application": subscription.owning_application,
                "consumer_group": subscription.consumer_group,
                "streams": len(dependencies.coordinator.topology(subscription.id).sessions),
                "partitions": [{"partition": number, **_known(lag)} for number, lag in partitions.items()],
                "clients": self._clients(subscription.id),
            }
            for member, total in (("unconsumed_events", sum), ("consumer_lag_seconds", max)):
                lags = [value for lag in partitions.values() if (value := lag[member]) is not None]
                if len(lags) == len(partitions):
                    item[member] = total(lags)
            items.append(item)
        return items

    def _clients(self, subscription_id: str) -> list[dict[str, str]]:
        """When each client last streamed and committed, if it did."""
        clients: dict[str, dict[str, str]] = {}
        for action, member in ((STREAM, "last_streamed_at"), (COMMIT, "last_committed_at")):
            for client, seen in self._dependencies.activity.of(action, subscription_id).items():
                clients.setdefault(client, client_members(client))[member] = rfc3339(seen.last_ms)
        return [clients[client] for client in sorted(clients)]


def client_members(key: str) -> dict[str, str]:
    """The name of a client, and its realm if it has one, from its key."""
    name, realm = name_and_realm(key)
    return {"client": name, "realm": realm} if realm else {"client": name}


def _known(members: Mapping[str, int | None]) -> dict[str, int]:
    return {name: value for name, value in members.items() if value is not None}


def _count(seen: LastActivity) -> dict[str, Any]:
    return {"since": rfc3339(seen.first_ms), "events": seen.amount}
