"""The past at a position is what a replay of the log up to there gives, for any history."""

import contextlib
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from sqlalchemy import create_engine, select

from rioni.domain.access.authorization import Attribute
from rioni.domain.errors import RioniError
from rioni.domain.event_types import selection
from rioni.domain.event_types.event_type import EventType
from rioni.domain.event_types.selection import EVERYTHING, EventTypeFilter
from rioni.domain.system.settings import SETTINGS, Settings
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.fold import decode_state
from rioni.projections.projector import Projector
from rioni.projections.queries import event_types, schemas, storages, subscriptions
from rioni.projections.queries.event_types import timelines_at
from rioni.projections.queries.past import Moment, settings_at
from rioni.projections.queries.subscriptions import SubscriptionFilter, TokenPosition
from rioni.projections.tables import STATES
from tests.support.history import entries, histories
from tests.support.log import append, create_tables


COMMANDS_MAX = 25
OWNER = "order"
READER = Attribute("service", "app-1")
MIDDLE = "8"
"""Some ids begin with less, others with more."""
BACKWARDS = TokenPosition(id=MIDDLE, forward=False, inclusive=True)
FORWARDS = TokenPosition(id=MIDDLE, forward=True, inclusive=False)


@contextlib.contextmanager
def database():
    engine = create_engine("sqlite://")
    create_tables(engine)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def outcome(query, *args):
    """The result of a query, or its error."""
    try:
        return query(*args)
    except RioniError as ex:
        return type(ex), str(ex)


def queries(names, ids):
    """Queries that take a connection, and at last the moment."""
    none = SubscriptionFilter()
    yield from (
        partial(_event_types, EVERYTHING, 0, None),
        partial(_event_types, EVERYTHING, 1, 2),
        partial(_event_types, EventTypeFilter(owning_application=OWNER, name="*1*"), 0, 1),
        partial(_listed, subscriptions, subscriptions.page, none, 0, 100),
        partial(_listed, subscriptions, subscriptions.page, none, 1, 2),
        partial(_listed, subscriptions, subscriptions.page, SubscriptionFilter(reader=READER), 0, 3),
        partial(_listed, subscriptions, subscriptions.page, SubscriptionFilter(event_types=tuple(names[:1])), 0, 3),
        partial(_listed, subscriptions, subscriptions.page_by_id, none, None, 2),
        partial(_listed, subscriptions, subscriptions.page_by_id, none, FORWARDS, 2),
        partial(_listed, subscriptions, subscriptions.page_by_id, none, BACKWARDS, 2),
        partial(_in, storages.all_storages),
        partial(_in, storages.get, "default"),
    )
    for name in names:
        yield partial(_in, event_types.body_of, name)
        yield partial(_schemas, name, 0, 100)
        yield partial(_schemas, name, 1, 1)
        yield partial(_in, schemas.body_of, name, "latest")
        yield partial(_in, schemas.body_of, name, "2.0.0")
    yield from (partial(_in, subscriptions.get, each) for each in ids)


def _event_types(wanted, offset, limit, connection, at):
    if at is None and wanted == EVERYTHING:
        names, more = event_types.page(connection, offset, limit)
    elif at is None:
        names, more = selection.page(present_event_types(connection), wanted, offset, limit)
    else:
        names, more = event_types.past_page(connection, at, wanted, offset, limit)
    return _bodies(partial(event_types.piece, connection), names, at), more


def _listed(module, page, *args):
    *given, connection, at = args
    return _bodies(partial(module.piece, connection), page(connection, *given, at), at)


def _schemas(name, offset, limit, connection, at):
    found = outcome(schemas.page, connection, name, offset, limit, at)
    if isinstance(found[0], type):
        return found
    return _bodies(partial(schemas.piece, connection, name), found[0], at), found[1]


def _bodies(piece, keys, at):
    """All bodies of a list, read piece by piece."""
    found = []
    while keys:
        some, done = piece(keys, at)
        found += some
        keys = keys[done:]
    return found


def present_event_types(connection):
    query = select(STATES.c.state).where(STATES.c.kind == "event-type", STATES.c.state.is_not(None))
    return [msgspec.json.decode(body, type=EventType) for body in connection.scalars(query)]


def _in(query, *args):
    *given, connection, at = args
    return outcome(query, connection, *given, at)


def state(connection, kind, key):
    query = select(STATES.c.state).where(STATES.c.kind == kind, STATES.c.key == key)
    return decode_state(kind, connection.scalar(query))


@settings(max_examples=20)
@given(histories(COMMANDS_MAX))
def test_the_past_at_any_position_is_a_replay_of_the_log_up_to_there(commands):
    log = list(entries(commands))
    keys = {
        kind: [each.event.key for each in log if each.event.kind == kind] for kind in ("event-type", "subscription")
    }
    names, ids = (sorted({*keys[kind], "no.such"})[:6] for kind in ("event-type", "subscription"))
    with database() as full, database() as replay:
        append(full, log)
        for entry in log:
            Projector().apply(replay, [entry])
            at = Moment(entry.position)
            for query in queries(names, ids):
                assert query(full, at) == query(replay, None)
            assert settings_at(full, at) == (state(replay, "settings", SETTINGS) or Settings())
            for name in names:
                event_type, timelines = state(replay, "event-type", name), state(replay, "timeline", name)
                if event_type:
                    none = Timelines(event_type=name, timelines=())
                    assert timelines_at(full, name, at) == (timelines or none, event_type)


@settings(max_examples=10)
@given(histories(COMMANDS_MAX))
def test_without_the_right_to_the_past_what_was_deleted_is_left_out_also_where_its_name_is_used_again(commands):
    """Reference audit#past-states."""
    log = list(entries(commands))
    with database() as full:
        append(full, log)
        today = {each.name for each in present_event_types(full)}
        ids_today = set(subscriptions.page(full, SubscriptionFilter(), 0, 1_000))
        for position in range(1, len(log) + 1):
            same = {name for name in today if _created(log, name) <= position}
            for deleted, kept in ((True, lambda _: True), (False, same.__contains__)):
                at = Moment(position, deleted=deleted)
                everything = event_types.past_page(full, Moment(position))[0]
                assert event_types.past_page(full, at)[0] == [name for name in everything if kept(name)]
            at, of_all = Moment(position, deleted=False), Moment(position)
            for name in {*everything} - same:
                for query in (event_types.body_of, timelines_at, _first_schemas):
                    with pytest.raises(RioniError):
                        query(full, name, at)
            found = subscriptions.page(full, SubscriptionFilter(), 0, 1_000, at)
            everything = subscriptions.page(full, SubscriptionFilter(), 0, 1_000, of_all)
            assert found == [each for each in everything if each in ids_today]
            for gone in {*everything} - ids_today:
                with pytest.raises(RioniError):
                    subscriptions.get(full, gone, at)


def _first_schemas(connection, name, at):
    return schemas.page(connection, name, 0, 1, at)


def _created(log, name):
    """The position of the last entry that created an event type of this name."""
    return max(each.position for each in log if (each.event.TOPIC, each.event.key) == ("event-type.created", name))
