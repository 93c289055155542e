"""`/subscriptions`: create, list, show, change and delete (reference subscriptions#fields); statistics."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import falcon
import msgspec
import orjson

from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.domain.errors import EventTypeNotFound, Malformed
from rioni.domain.ports.coordinator import Assignment, Topology
from rioni.domain.streaming.messages import Reason
from rioni.domain.subscriptions.cursor_arithmetic import start_offsets
from rioni.domain.subscriptions.lag import cursor_errors, partitions_of, unconsumed_of
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.client_activity import END
from rioni.domain.timelines.position import EventTypePartition
from rioni.domain.timestamps import rfc3339
from rioni.http.answers import answer_list
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.dependencies import Dependencies, Resource
from rioni.http.request_parsing import AS_OF, as_of, attribute, dispatch, integer, integer_within, listed, parsed
from rioni.http.resources.clients import client_members
from rioni.http.resources.filter_evaluations import warn_of_filter
from rioni.projections.queries import subscriptions
from rioni.projections.queries.past import Moment
from rioni.projections.queries.subscriptions import SubscriptionFilter, TokenPosition
from rioni.projections.queries.timeline_reader import ages_s, newest_consistent, offset_ranges_of


# --- `/subscriptions/{id}/stats`: partition assignment and consumer lag ---
#
# Source: reference subscriptions#partition-statistics.


class SubscriptionStatsResource(Resource):
    """The statistics of one subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Show all partitions with their readers and their lag; with `show_time_lag` also in seconds.

        With `show_initial_lag`, events that wait for a subscription that was never streamed count, too.
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
            # Starts are read before the ends, so they are never beyond these.
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
    """The known members of a partition, in the order that clients know."""
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


# --- `/subscriptions`: create, list, show, change, delete (reference subscriptions#fields) ---

PAGE_MAX = 1_000
PAGE_DEFAULT = 20
NEW_TOKEN = "new"  # noqa: S105 - a place in a list, not a secret


class SubscriptionsResource(Resource):
    """The collection."""

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create a subscription, or answer the one that is the same."""
        spec = parsed(parsing.subscription_spec, read_json(req), self._dependencies)
        subscription, created = dispatch(CreateSubscription(spec=spec), req, self._dependencies)
        warn_of_filter(resp, self._dependencies, subscription.filter, subscription.event_types)
        self._dependencies.system_event_types.ensure_for(subscription)
        location = f"{req.root_path}/subscriptions/{subscription.id}"
        resp.set_header("Location", location)
        if created:
            resp.status = HTTPStatus.CREATED.value
            resp.set_header("Content-Location", location)
        resp.data = msgspec.json.encode(subscription)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List subscriptions, newest first, or by id when a token is used."""
        offset, limit = integer(req, "offset", 0), integer_within(req, "limit", PAGE_DEFAULT, 1, PAGE_MAX)
        if offset < 0:
            raise Malformed("'offset' parameter can't be lower than 0")
        self._dependencies.registry.refresh()
        at = as_of(req, resp, self._dependencies)
        show_status = req.get_param_as_bool("show_status") or False
        if at is not None and show_status:
            raise Malformed("show_status returns the present status, and can't be combined with as_of")
        wanted = SubscriptionFilter(
            owning_application=req.get_param("owning_application"),
            event_types=tuple(listed(req, "event_type")),
            reader=attribute(req, "reader"),
        )
        token = req.get_param("token")
        if (
            token is None
            and offset == 0
            and "token_subscriptions_iteration" in self._dependencies.registry.settings.features
        ):
            token = NEW_TOKEN
        if token is None:
            found = self._dependencies.query(subscriptions.page, wanted, offset, limit, at)
            places = _offset_places(offset, limit, len(found))
        else:
            place = _parse_token(token)
            found = self._dependencies.query(subscriptions.page_by_id, wanted, place, limit + 1, at)
            found, places = _token_places(found, place, limit)
        links = {rel: {"href": _href(req, place, limit)} for rel, place in places.items()}
        answer_list(
            req,
            resp,
            self._dependencies.answers,
            found,
            lambda ids: self._piece(ids, at, show_status=show_status),
            head=b'{"items":[',
            tail=lambda: b'],"_links":%b}' % orjson.dumps(links),
        )

    def _piece(self, ids: Sequence[str], at: Moment | None, *, show_status: bool) -> tuple[list[bytes], int]:
        items, done = self._dependencies.query(subscriptions.piece, ids, at)
        if not show_status:
            return items, done
        # The page may contain event types that were created meanwhile.
        self._dependencies.registry.refresh()
        return [*map(self._with_status, items)], done

    def _with_status(self, item: bytes) -> bytes:
        subscription = msgspec.json.decode(item, type=Subscription)
        return item[:-1] + b',"status":' + orjson.dumps(status_of(self._dependencies, subscription)) + b"}"


class SubscriptionResource(Resource):
    """One subscription."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Show a subscription."""
        at = as_of(req, resp, self._dependencies)
        resp.data = msgspec.json.encode(self._dependencies.query(subscriptions.get, subscription_id, at))

    def on_put(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Change a subscription."""
        spec = parsed(parsing.subscription_spec, read_json(req), self._dependencies)
        changed = dispatch(ChangeSubscription(subscription_id=subscription_id, spec=spec), req, self._dependencies)
        self._dependencies.system_event_types.ensure_for(changed)
        warn_of_filter(resp, self._dependencies, spec.filter, changed.event_types)
        resp.status = HTTPStatus.NO_CONTENT.value

    def on_delete(self, req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Delete a subscription."""
        dispatch(DeleteSubscription(subscription_id=subscription_id), req, self._dependencies)
        resp.status = HTTPStatus.NO_CONTENT.value


def _offset_places(offset: int, limit: int, found: int) -> dict[str, str]:
    places = {}
    if offset > 0:
        places["prev"] = f"offset={max(0, offset - limit)}"
    if found == limit:
        places["next"] = f"offset={offset + found}"
    return places


_DIRECTIONS = {"F": (True, False), "W": (True, True), "B": (False, False), "I": (False, True)}
"""The first character of a token: forwards or backwards, and whether the id itself belongs to the page."""


def _parse_token(token: str) -> TokenPosition | None:
    if token == NEW_TOKEN:
        return None
    if token[:1] not in _DIRECTIONS or len(token) == 1:
        raise Malformed(f"token: '{token}' is not a valid page token")
    forward, inclusive = _DIRECTIONS[token[0]]
    return TokenPosition(id=token[1:], forward=forward, inclusive=inclusive)


def _token_places(found: list[str], place: TokenPosition | None, limit: int) -> tuple[list[str], dict[str, str]]:
    """Cut a page that was read with one item too many; return it with the places of its neighbours."""
    more = len(found) > limit
    forward = place is None or place.forward
    if more:
        found = found[:limit] if forward else found[1:]
    places = {}
    if found and (more if not forward else place is not None):
        places["prev"] = f"token=B{found[0]}"
    if found and (more if forward else True):
        places["next"] = f"token=F{found[-1]}"
    return found, places


def _href(req: falcon.Request, place: str, limit: int) -> str:
    parts = [f"event_type={quote(name)}" for name in listed(req, "event_type")]
    parts += [
        f"{name}={quote(value, safe=':')}"
        for name in ("reader", "owning_application", "show_status", AS_OF)
        if (value := req.get_param(name)) is not None
    ]
    return f"{req.root_path}/subscriptions?" + "&".join([*parts, place, f"limit={limit}"])


# --- `/subscriptions/{id}/ended-streams`: the reasons why streams ended (reference streams#ended-streams) ---

_ENDS = {END + reason.label: reason.label for reason in Reason}


class EndedStreamsResource(Resource):
    """The ended streams of one subscription."""

    def on_get(self, _req: falcon.Request, resp: falcon.Response, subscription_id: str) -> None:
        """Count them by client and reason, those that ended last first."""
        self._dependencies.registry.refresh()
        self._dependencies.registry.subscription(subscription_id)
        ends = self._dependencies.activity.of_any(_ENDS, subscription_id)
        items = [
            {
                **client_members(key.client),
                "reason": _ENDS[key.action],
                "count": seen.amount,
                "first_at": rfc3339(seen.first_ms),
                "last_at": rfc3339(seen.last_ms),
            }
            for key, seen in sorted(ends.items(), key=lambda end: (-end[1].last_ms, end[0]))
        ]
        resp.data = orjson.dumps({"items": items})
