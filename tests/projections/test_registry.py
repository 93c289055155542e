import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rioni.commands.event_types import AddSchema, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import CreateSubscription, DeleteSubscription
from rioni.commands.system.storages import SwitchFeature
from rioni.domain.aggregates import FORMATS, TOPICS, Format, newest
from rioni.domain.compiled_cache import CompiledCache
from rioni.domain.errors import EventTypeNotFound, SubscriptionNotFound, Unavailable
from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.domain.events import DomainEvent
from rioni.domain.ports.host import direct
from rioni.domain.system.settings import SETTINGS
from rioni.projections.projector import all_states
from rioni.projections.registry import MemoryRegistry
from rioni.storage.log.event_log import SqlEventLog
from rioni.storage.log.recorder import UnreadableEntry
from tests.support.builders import SCHEMA, event_type_spec, origin, subscription_spec
from tests.support.waiting import WAIT_S


NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())


def test_the_registry_follows_the_log(broker):
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


def test_the_registry_follows_subscriptions_and_settings(broker):
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


def test_starting_from_the_read_models_has_the_same_result_as_from_the_beginning(broker):
    broker.do(CREATE)
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    started = MemoryRegistry(broker.log, broker.limits, direct, direct, CompiledCache(10_000_000))
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


def test_the_registry_follows_notified_entries_too(broker):
    broker.do(CREATE)
    broker.registry.catch_up()
    assert broker.registry.event_type(NAME).name == NAME


class FeatureSwitchedFor(DomainEvent, frozen=True, kw_only=True):
    """The version of `FeatureSwitched` that the next release records."""

    TOPIC = "settings.feature-switched"
    KEY = "setting"

    class_version: int = 2
    setting: str = SETTINGS
    feature: str
    enabled: bool
    client: str


def test_a_node_stops_at_an_entry_of_a_newer_release_and_keeps_what_it_knows(broker):
    """Requests are answered 503 then, since they refresh the registry first."""
    broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    broker.registry.refresh()
    before, position = broker.registry.settings, broker.registry.position
    event = FeatureSwitchedFor(feature="kpi_collection", enabled=False, client="x")
    coming = newest(FORMATS) + 1
    formats = {**FORMATS, coming: Format("1.0.0", {event.TOPIC: 2})}
    with SqlEventLog(broker.engine, TOPICS, formats=formats).transaction() as transaction:
        transaction.append(event.stream, 1, [event], origin())
    for _ in range(3):
        with pytest.raises(UnreadableEntry, match=rf"position {position + 1} .* a newer release of Rioni wrote it"):
            broker.registry.refresh()
        assert (broker.registry.settings, broker.registry.position) == (before, position)
        with pytest.raises(Unavailable, match=f"The log is written in format {coming}"):
            broker.do(SwitchFeature(feature="kpi_collection", enabled=False))


def registry_with(broker, bytes_max, compute=direct):
    registry = MemoryRegistry(broker.log, broker.limits, direct, compute, CompiledCache(bytes_max))
    registry.refresh()
    return registry


def test_compiled_schemas_are_dropped_and_compiled_again_within_the_bound(broker):
    names = [f"order.number-{number}" for number in range(12)]
    for name in names:
        broker.do(CreateEventType(spec=event_type_spec(name=name)))
    one = registry_with(broker, 10_000_000).publish_rules(names[0]).bytes_
    compiled = []

    def compute(function, *args, **kwargs):
        compiled.append(function)
        return function(*args, **kwargs)

    registry = registry_with(broker, 3 * one, compute)
    for name in names * 2:
        assert registry.publish_rules(name).name == name
    assert len(registry._rules) == 3
    assert len(compiled) == 24
    registry.publish_rules(names[-1])
    assert len(compiled) == 24


def test_requests_that_need_the_same_schema_wait_for_one_that_compiles_it(broker):
    broker.do(CREATE)
    begun, may_end, compiled = threading.Event(), threading.Event(), []

    def compute(function):
        compiled.append(function)
        begun.set()
        assert may_end.wait(WAIT_S)
        return function()

    registry = registry_with(broker, 10_000_000, compute)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(registry.publish_rules, NAME)
        assert begun.wait(WAIT_S)
        others = [threads.submit(registry.publish_rules, NAME) for _ in range(7)]
        may_end.set()
        assert {id(each.result(WAIT_S)) for each in (first, *others)} == {id(first.result())}
    assert len(compiled) == 1


def test_where_compiling_fails_those_that_wait_try_it_themselves(broker):
    broker.do(CREATE)
    outcomes = [Unavailable("busy"), None]

    def compute(function):
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return function()

    registry = registry_with(broker, 10_000_000, compute)
    with pytest.raises(Unavailable):
        registry.publish_rules(NAME)
    assert registry.publish_rules(NAME).name == NAME
