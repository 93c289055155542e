import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.schemas import AddSchema
from rioni.commands.settings import SwitchFeature
from rioni.commands.subscriptions import CreateSubscription, DeleteSubscription
from rioni.domain.errors import EventTypeNotFound, SubscriptionNotFound
from rioni.domain.event_type import SubmittedSchema
from rioni.domain.ports import direct
from rioni.projections.registry import MemoryRegistry
from rioni.projections.states import all_states
from tests.support.builders import SCHEMA, event_type_spec, subscription_spec


NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())


def test_it_follows_the_log(broker):
    broker.registry.refresh()
    with pytest.raises(EventTypeNotFound):
        broker.registry.event_type(NAME)
    created = broker.do(CREATE)
    broker.registry.refresh()
    assert broker.registry.event_type(NAME) == created
    assert broker.registry.timelines(NAME).active.order == 1
    assert broker.registry.position == broker.log.head().position
    broker.do(DeleteEventType(name=NAME))
    broker.registry.refresh()
    for lookup in (broker.registry.event_type, broker.registry.timelines, broker.registry.publish_rules):
        with pytest.raises(EventTypeNotFound):
            lookup(NAME)


def test_it_follows_subscriptions_and_settings(broker):
    broker.do(CREATE)
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec()))
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    broker.registry.refresh()
    assert broker.registry.subscription(subscription.id) == subscription
    assert broker.registry.settings.features == ("kpi_collection", "repartitioning")
    broker.do(DeleteSubscription(subscription_id=subscription.id))
    broker.registry.refresh()
    with pytest.raises(SubscriptionNotFound):
        broker.registry.subscription(subscription.id)


def test_starting_from_the_read_models_gives_the_same_as_from_the_beginning(broker):
    broker.do(CREATE)
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    started = MemoryRegistry(broker.log, broker.limits, direct)
    with broker.engine.connect() as connection:
        started.load(all_states(connection), broker.projector.position(connection))
    broker.registry.refresh()
    assert started.position == broker.registry.position
    assert started.event_type(NAME) == broker.registry.event_type(NAME)
    assert started.settings == broker.registry.settings
    broker.do(DeleteEventType(name=NAME))
    started.refresh()
    with pytest.raises(EventTypeNotFound):
        started.event_type(NAME)


def test_publish_rules_are_kept_until_the_event_type_changes(broker):
    broker.do(CREATE)
    broker.registry.refresh()
    rules = broker.registry.publish_rules(NAME)
    assert broker.registry.publish_rules(NAME) is rules
    wider = SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1)
    broker.do(AddSchema(name=NAME, schema=SubmittedSchema(type="json_schema", schema=wider)))
    broker.registry.refresh()
    assert broker.registry.publish_rules(NAME).schema_version == "1.1.0"


def test_what_it_hears_of_it_follows_too(broker):
    broker.do(CREATE)
    broker.registry.hear()
    assert broker.registry.event_type(NAME).name == NAME
