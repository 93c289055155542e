"""One command is one transaction; one table lists what each command needs and returns."""

import pytest
from structlog.testing import capture_logs

from rioni.commands.bus import CommandBus
from rioni.commands.event_types import CreateEventType
from rioni.commands.routes import ROUTES
from rioni.commands.system.storages import SwitchFeature
from rioni.domain.errors import NotFound, Unavailable
from rioni.domain.timelines.timeline import TimelineOpened
from rioni.projections.projector import Projector
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import NOW, context, event_type_spec


def test_every_event_contains_its_origin(broker):
    broker.bus.dispatch(CreateEventType(spec=event_type_spec()), context(actor="alice", flow_id="f"))
    entries = broker.log.entries(1, 10)
    assert {entry.origin for entry in entries} == {context(actor="alice", flow_id="f").origin}
    assert entries[0].origin.recorded_at == NOW


def test_the_read_models_are_at_the_position_of_the_log(broker):
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    with broker.engine.connect() as connection:
        assert broker.projector.position(connection) == broker.log.head().position


def test_a_transaction_that_fails_halfway_writes_nothing(broker):
    topics = []

    class FailingModels(Projector):
        def apply(self, connection, entries):
            super().apply(connection, entries)
            for entry in entries:
                if isinstance(entry.event, TimelineOpened):
                    topics.append(entry.event.timeline.topic)
                    raise Unavailable("the wire was cut")

    failing = CommandBus(
        broker.log,
        FailingModels(),
        ROUTES,
        stores=broker.stores,
        coordinator=broker.coordinator,
        limits=broker.limits,
        default_admin=DEFAULT_ADMIN,
    )
    head = broker.log.head().position
    with pytest.raises(Unavailable):
        failing.dispatch(CreateEventType(spec=event_type_spec()), context())
    assert broker.topics(head) == ["topic-creation.started", "topic-creation.ended", "topic.abandoned"]
    broker.background_jobs()._orphan_cleaner.delete_abandoned(broker.context())
    with pytest.raises(NotFound):
        broker.store.bounds(topics[0])
    assert broker.do(CreateEventType(spec=event_type_spec())).name == "order.created"


def test_an_effect_that_could_not_be_undone_is_told_and_so_is_that_the_database_works_again(broker, monkeypatch):
    transaction, away = broker.log.transaction, []

    def fail(*_args):
        away.append(True)
        raise Unavailable("the disk is full")

    def may_fail():
        if away:
            raise Unavailable("the database is away")
        return transaction()

    monkeypatch.setattr(broker.store, "create_topic", fail)
    monkeypatch.setattr(broker.log, "transaction", may_fail)
    with capture_logs() as lines:
        for _ in range(2):
            away.clear()
            with pytest.raises(Unavailable, match="the disk is full"):
                broker.bus.dispatch(CreateEventType(spec=event_type_spec()), context())
        assert [line["reason"] for line in lines if "undo" in line["event"]] == ["the database is away"] * 2
        away.clear()
        for enabled in (True, False):
            broker.do(SwitchFeature(feature="kpi_collection", enabled=enabled))
    assert [line["event"] for line in lines].count("works again") == 2
