import pytest
from sqlalchemy import select

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription, DeleteSubscription
from rioni.commands.system.storages import SwitchFeature
from rioni.projections.projector import Projector
from rioni.projections.tables import AUDIT_LOG, EVENT_TYPES, READ_MODELS, SUBSCRIPTION_EVENT_TYPES
from rioni.storage.sql.engines import writing
from tests.support.builders import event_type_spec, subscription_spec


def rows(broker):
    with broker.engine.connect() as connection:
        return {
            name: sorted(map(tuple, connection.execute(select(table)))) for name, table in READ_MODELS.tables.items()
        }


@pytest.fixture
def history(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    broker.do(CreateEventType(spec=event_type_spec(name="other")))
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    kept, _ = broker.do(CreateSubscription(spec=subscription_spec()))
    gone, _ = broker.do(CreateSubscription(spec=subscription_spec(consumer_group="gone")))
    broker.do(DeleteSubscription(subscription_id=gone.id))
    broker.do(DeleteEventType(name="other"))
    return kept


def test_dropped_read_models_are_rebuilt_equally_from_the_log(broker, history):
    before = rows(broker)
    with writing(broker.engine) as connection:
        Projector().clear(connection)
        Projector().apply(connection, broker.log.entries(0, 1_000))
    assert rows(broker) == before


def test_only_existing_resources_have_rows_but_the_audit_log_has_all(broker, history):
    found = rows(broker)
    assert [row[0] for row in found[EVENT_TYPES.name]] == ["order.created"]
    assert found[SUBSCRIPTION_EVENT_TYPES.name] == [(history.id, "order.created")]
    assert len(found[AUDIT_LOG.name]) == broker.log.head().position


def test_entries_out_of_order_are_rejected(broker, history):
    with pytest.raises(ValueError, match="does not follow"), writing(broker.engine) as connection:
        Projector().apply(connection, broker.log.entries(0, 1))


def test_subscriptions_are_found_by_event_type(broker, history):
    with broker.engine.connect() as connection:
        assert broker.projector.subscriptions_of(connection, "order.created") == [history]
        assert broker.projector.subscriptions_of(connection, "other") == []
