"""Queries over the subscriptions."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec
from sqlalchemy import Connection, Select, select

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import SubscriptionNotFound
from rioni.domain.subscriptions.subscription import Subscription
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import SUBSCRIPTION_EVENT_TYPES, SUBSCRIPTIONS


SUBSCRIPTION = "subscription"


class SubscriptionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which subscriptions are asked for (reference subscriptions#list)."""

    owning_application: str | None = None
    event_types: tuple[str, ...] = ()
    """All of them must be subscribed to."""
    reader: Attribute | None = None
    """Must be listed explicitly among the readers."""


class TokenPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the list ordered by id: forwards or backwards from an id, which may be part of the page."""

    id: str
    forward: bool
    inclusive: bool


def get(connection: Connection, subscription_id: str, at: Moment | None = None) -> Subscription:
    """The subscription, now or at a moment of the past.

    Raises:
        SubscriptionNotFound: there is none of this id.
    """
    if at is None:
        body = connection.scalar(select(SUBSCRIPTIONS.c.body).where(SUBSCRIPTIONS.c.id == subscription_id))
    else:
        body = past.state(connection, SUBSCRIPTION, subscription_id, at)
    if body is None:
        raise SubscriptionNotFound(subscription_id)
    return _decode(body)


def page(
    connection: Connection, wanted: SubscriptionFilter, offset: int, limit: int, at: Moment | None = None
) -> list[Subscription]:
    """A page of subscriptions, now or at a moment of the past, newest first.

    A moment of the past takes time in proportion to the subscriptions before the end of the page.
    """
    if at is not None:
        return list(islice(_fitting(past.newest_subscriptions(connection, at), wanted), offset, offset + limit))
    query = _filtered(wanted).order_by(SUBSCRIPTIONS.c.created_at.desc(), SUBSCRIPTIONS.c.id)
    if wanted.reader is None:
        return _decoded(connection, query.offset(offset).limit(limit))
    return _with_reader(_decoded(connection, query), wanted.reader)[offset : offset + limit]


def page_by_id(
    connection: Connection,
    wanted: SubscriptionFilter,
    place: TokenPosition | None,
    limit: int,
    at: Moment | None = None,
) -> list[Subscription]:
    """A page of at most `limit` subscriptions in the order of their ids, from a place on or up to it; likewise."""
    if at is not None:
        return _past_page_by_id(connection, wanted, place, limit, at)
    query = _filtered(wanted)
    column = SUBSCRIPTIONS.c.id
    if place is not None and place.forward:
        query = query.where(column >= place.id if place.inclusive else column > place.id)
    elif place is not None:
        query = query.where(column <= place.id if place.inclusive else column < place.id)
    backward = place is not None and not place.forward
    query = query.order_by(column.desc() if backward else column)
    if wanted.reader is None:
        query = query.limit(limit)
    found = _decoded(connection, query)
    if wanted.reader is not None:
        found = _with_reader(found, wanted.reader)[:limit]
    return found[::-1] if backward else found


def _past_page_by_id(
    connection: Connection, wanted: SubscriptionFilter, place: TokenPosition | None, limit: int, at: Moment
) -> list[Subscription]:
    if place is None:
        bodies = past.states(connection, SUBSCRIPTION, at)
    else:
        bodies = past.states(
            connection, SUBSCRIPTION, at, start=place.id, inclusive=place.inclusive, descending=not place.forward
        )
    found = list(islice(_fitting(bodies, wanted), limit))
    return found if place is None or place.forward else found[::-1]


def _fitting(bodies: Iterable[str], wanted: SubscriptionFilter) -> Iterator[Subscription]:
    for subscription in map(_decode, bodies):
        if (
            wanted.owning_application in (None, subscription.owning_application)
            and set(wanted.event_types) <= set(subscription.event_types)
            and (wanted.reader is None or _with_reader([subscription], wanted.reader))
        ):
            yield subscription


def _filtered(wanted: SubscriptionFilter) -> Select[str]:
    query = select(SUBSCRIPTIONS.c.body)
    if wanted.owning_application is not None:
        query = query.where(SUBSCRIPTIONS.c.owning_application == wanted.owning_application)
    for event_type in wanted.event_types:
        links = SUBSCRIPTION_EVENT_TYPES.c
        query = query.where(SUBSCRIPTIONS.c.id.in_(select(links.subscription_id).where(links.event_type == event_type)))
    return query


def _with_reader(subscriptions: Sequence[Subscription], reader: Attribute) -> list[Subscription]:
    return [each for each in subscriptions if each.authorization and reader in each.authorization.readers]


def _decoded(connection: Connection, query: Select[str]) -> list[Subscription]:
    return [_decode(body) for body in connection.scalars(query)]


def _decode(body: str) -> Subscription:
    return msgspec.json.decode(body, type=Subscription)
