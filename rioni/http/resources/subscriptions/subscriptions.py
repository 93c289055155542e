"""`/subscriptions`: create, list, show, change, delete (reference subscriptions#fields)."""

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import quote

import falcon
import msgspec
import orjson

from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.domain.errors import Malformed
from rioni.domain.subscriptions.subscription import Subscription
from rioni.http.answers.lists import answer_list
from rioni.http.bodies import parsing
from rioni.http.bodies.reading import read_json
from rioni.http.history import AS_OF, as_of
from rioni.http.request_parsing import attribute, dispatch, integer, integer_within, listed, parsed
from rioni.http.resources.filter_evaluations import warn_of_filter
from rioni.http.resources.resource import Resource
from rioni.http.resources.subscriptions.stats import status_of
from rioni.projections.queries import subscriptions
from rioni.projections.queries.past import Moment
from rioni.projections.queries.subscriptions import SubscriptionFilter, TokenPosition


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
        # The page may know of event types that came meanwhile.
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
    """Cut a page that was asked for with one item too many, and say where its neighbours begin."""
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
