"""Commands whose connection to PostgreSQL is cut during the commit, or that run into a deadlock."""

import contextlib
import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Event

import pytest
from sqlalchemy import text

from rioni.commands.bus import ATTEMPTS_MAX, CommandBus
from rioni.commands.event_types import CreateEventType
from rioni.commands.routes import ROUTES
from rioni.commands.system.storages import SwitchFeature
from rioni.domain.aggregates import TOPICS
from rioni.domain.errors import CommitOutcomeUnknown, Conflict, TransactionConflict
from rioni.projections.projector import Projector
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.sql import engines
from tests.support.broker import DEFAULT_ADMIN, running_broker
from tests.support.builders import context, event_type_spec
from tests.support.proxy import Cut, proxy_to
from tests.support.waiting import WAIT_S


pytestmark = pytest.mark.postgres

REFUSED = pytest.raises(TransactionConflict, match="Try again later")
CREATE = CreateEventType(spec=event_type_spec())


@pytest.fixture
def proxy(postgres_url):
    with proxy_to(postgres_url()) as proxy:
        yield proxy


@pytest.fixture
def broker(proxy, tmp_path):
    with running_broker(tmp_path / "data", database=proxy.url) as broker:
        yield broker


def topics_of(broker):
    return Counter(entry.event.TOPIC for entry in broker.log.entries(0, 100))


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
@pytest.mark.parametrize("transaction", range(3))
def test_a_command_whose_connection_is_cut_in_the_commit_succeeds_and_is_recorded_once(broker, proxy, cut, transaction):
    before, transact = topics_of(broker), broker.bus.transact
    transactions = itertools.count()

    def cut_in_one(command, context):
        if next(transactions) == transaction:
            proxy.cut = cut
        return transact(command, context)

    broker.bus.transact = cut_in_one
    created = broker.bus.dispatch(CREATE, context())
    assert (proxy.cuts, next(transactions)) == (1, 3)
    assert topics_of(broker) - before == {
        "topic-creation.started": 1,
        "topic-creation.ended": 1,
        "event-type.created": 1,
        "timeline.opened": 1,
    }
    broker.registry.refresh()
    assert broker.registry.event_type(created.name) == created
    timeline = broker.registry.timelines(created.name).active
    assert len(broker.store.bounds(timeline.topic)) == timeline.partitions
    with pytest.raises(Conflict):
        broker.bus.dispatch(CREATE, context())


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_command_that_changes_nothing_succeeds_too(broker, proxy, cut):
    switch = SwitchFeature(feature="kpi_collection", enabled=True)
    broker.bus.dispatch(switch, context())
    head = broker.log.head()
    proxy.cut = cut
    broker.bus.dispatch(switch, context())
    assert proxy.cuts == 1
    assert broker.log.head() == head


def test_an_earlier_change_with_the_same_command_id_is_not_taken_for_this_one(broker, proxy):
    mine = context()
    for enabled in (True, False):
        broker.bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=enabled), mine)
    proxy.cut = Cut.BEFORE
    broker.bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=True), mine)
    broker.registry.refresh()
    assert "kpi_collection" in broker.registry.settings.features


def test_a_command_cut_before_every_commit_fails_and_writes_nothing(broker, proxy):
    head = broker.log.head()
    proxy.cut, proxy.always = Cut.BEFORE, True
    with pytest.raises(TransactionConflict):
        broker.bus.dispatch(CREATE, context())
    assert proxy.cuts == ATTEMPTS_MAX
    assert broker.log.head() == head


def test_without_a_server_the_outcome_of_the_commit_is_unknown(broker, proxy):
    """Reference common#unavailable."""
    log = SqlEventLog(engines.create_engine(proxy.url), TOPICS, return_wait_s=0.2)
    proxy.cut = Cut.FOR_GOOD
    with contextlib.closing(log), pytest.raises(CommitOutcomeUnknown, match="outcome is unknown"):
        broker.bus_on(log).dispatch(CREATE, context())


# --- deadlocks ---


class Deadlocks(Projector):
    """Read models to which other transactions write as well, against the rules: each time two of them deadlock."""

    def __init__(self, others, times):
        super().__init__()
        self._others, self._left = others, times
        self._waiting = ThreadPoolExecutor(1)

    def apply(self, connection, entries):
        if self._left:
            self._left -= 1
            has_begun = Event()
            waiting = self._waiting.submit(self._write_in_between, has_begun)
            assert has_begun.wait(WAIT_S)
            try:
                super().apply(connection, entries)
            finally:
                connection.rollback()
                waiting.result(WAIT_S)
        else:
            super().apply(connection, entries)

    def _write_in_between(self, has_begun):
        with self._others.begin() as connection:
            connection.execute(text("SELECT * FROM tracking FOR UPDATE"))
            has_begun.set()
            connection.execute(text("SELECT * FROM head FOR UPDATE"))


@pytest.mark.parametrize(("times", "outcome"), [(ATTEMPTS_MAX - 1, nullcontext()), (ATTEMPTS_MAX, REFUSED)])
def test_a_command_in_a_deadlock_is_retried_a_limited_number_of_times(broker, proxy, times, outcome):
    # The transaction that checks first finds the deadlock, and is aborted.
    log = SqlEventLog(engines.create_engine(f"{proxy.url}&options=-c deadlock_timeout=10ms"), TOPICS)
    bus = CommandBus(
        log,
        Deadlocks(broker.engine, times),
        ROUTES,
        stores=broker.stores,
        coordinator=broker.coordinator,
        limits=broker.limits,
        default_admin=DEFAULT_ADMIN,
    )
    before = topics_of(broker)
    with contextlib.closing(log), outcome:
        bus.dispatch(SwitchFeature(feature="kpi_collection", enabled=True), context())
    assert topics_of(broker) - before == ({} if outcome is REFUSED else {"settings.feature-switched": 1})
