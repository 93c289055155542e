"""Queries over the subscriptions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import SubscriptionNotFound
from rioni.domain.subscriptions.subscription import Subscription
from rioni.projections.queries import past
from rioni.projections.queries.past import Moment
from rioni.projections.tables import SUBSCRIPTION_EVENT_TYPES, SUBSCRIPTIONS


SUBSCRIPTION = "subscription"


class SubscriptionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of subscriptions (reference subscriptions#list)."""

    owning_application: str | None = None
    event_types: tuple[str, ...] = ()
    """All of them must be subscribed to."""
    reader: Attribute | None = None
    """An attribute that must be listed explicitly among the readers."""


class TokenPosition(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the list ordered by id: forwards or backwards from an id, which may be part of the page."""

    id: str
    forward: bool
    inclusive: bool


def get(connection: Connection, subscription_id: str, at: Moment | None = None) -> Subscription:
    """The subscription, now or at a moment of the past.

    Raises:
        SubscriptionNotFound: there is no subscription with this id.
    """
    body = past.body_of(connection, SUBSCRIPTIONS, SUBSCRIPTION, subscription_id, at)
    if body is None:
        raise SubscriptionNotFound(subscription_id)
    return _decode(body)


def page(
    connection: Connection, wanted: SubscriptionFilter, offset: int, limit: int, at: Moment | None = None
) -> list[str]:
    """The ids of a page of subscriptions, now or at a moment of the past, newest first.

    A moment of the past, and a reader, take time in proportion to the subscriptions before the end of the page.
    """
    if at is not None:
        found = _fitting(past.newest_subscriptions(connection, at), wanted)
        return [each.id for each in islice(found, offset, offset + limit)]
    order = SUBSCRIPTIONS.c.created_at.desc(), SUBSCRIPTIONS.c.id
    return _ids(connection, wanted, order, offset, limit)


def page_by_id(
    connection: Connection,
    wanted: SubscriptionFilter,
    place: TokenPosition | None,
    limit: int,
    at: Moment | None = None,
) -> list[str]:
    """The ids of at most `limit` subscriptions by id, from a place on or up to it, now or at a moment of the past."""
    forward = place is None or place.forward
    if at is None:
        order = SUBSCRIPTIONS.c.id if forward else SUBSCRIPTIONS.c.id.desc()
        found = _ids(connection, wanted, (order,), 0, limit, place)
    else:
        start, inclusive = (None, True) if place is None else (place.id, place.inclusive)
        bodies = past.states(connection, SUBSCRIPTION, at, start=start, inclusive=inclusive, descending=not forward)
        found = [each.id for each in islice(_fitting(bodies, wanted), limit)]
    return found if forward else found[::-1]


def piece(connection: Connection, ids: Sequence[str], at: Moment | None = None) -> tuple[list[bytes], int]:
    """The JSON of the first of some subscriptions, now or at a moment of the past, and how many ids that were."""

    def read(some: Sequence[str]) -> Mapping[str, bytes]:
        bodies = past.bodies_of(connection, SUBSCRIPTIONS, SUBSCRIPTION, some, at)
        # Written anew, as older versions may have written them with fewer members.
        return {id_: msgspec.json.encode(_decode(body)) for id_, body in bodies.items()}

    return past.piece(read, ids)


def _ids(
    connection: Connection,
    wanted: SubscriptionFilter,
    order: Sequence[Any],
    offset: int,
    limit: int,
    place: TokenPosition | None = None,
) -> list[str]:
    column = SUBSCRIPTIONS.c.id
    query = select(SUBSCRIPTIONS.c.body).order_by(*order)
    if wanted.owning_application is not None:
        query = query.where(SUBSCRIPTIONS.c.owning_application == wanted.owning_application)
    for event_type in wanted.event_types:
        links = SUBSCRIPTION_EVENT_TYPES.c
        query = query.where(column.in_(select(links.subscription_id).where(links.event_type == event_type)))
    if place is not None and place.forward:
        query = query.where(column >= place.id if place.inclusive else column > place.id)
    elif place is not None:
        query = query.where(column <= place.id if place.inclusive else column < place.id)
    if wanted.reader is None:
        return [*connection.scalars(query.with_only_columns(column).offset(offset).limit(limit))]
    # One after the other: there may be many, and some of them large.
    bodies = connection.scalars(query.execution_options(yield_per=past.ROWS_AT_ONCE))
    found = (each.id for each in map(_decode, bodies) if _has_reader(each, wanted.reader))
    return [*islice(found, offset, offset + limit)]


def _fitting(bodies: Iterable[str], wanted: SubscriptionFilter) -> Iterator[Subscription]:
    for subscription in map(_decode, bodies):
        if (
            wanted.owning_application in (None, subscription.owning_application)
            and set(wanted.event_types) <= set(subscription.event_types)
            and (wanted.reader is None or _has_reader(subscription, wanted.reader))
        ):
            yield subscription


def _has_reader(subscription: Subscription, reader: Attribute) -> bool:
    return subscription.authorization is not None and reader in subscription.authorization.readers


def _decode(body: str) -> Subscription:
    return msgspec.json.decode(body, type=Subscription)
