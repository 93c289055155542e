"""While a command locks the head of the log it waits for nothing else: no store, no coordinator, no long check."""

import contextlib
import itertools

import msgspec
import pytest

from rioni.commands.bus import STEPS_MAX
from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.commands.system.storages import CreateStorage, SwitchFeature
from rioni.commands.timelines.timelines import AbortSwitch, CleanUpTimeline, Repartition, StartSwitch
from rioni.commands.unit_of_work import Outside
from rioni.domain.errors import Invalid, Unavailable
from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.domain.subscriptions.cursor_spec import CursorSpec
from rioni.domain.system.storages import StorageEntry
from tests.support.builders import LATER_MS, SCHEMA, event_type_spec, subscription_spec


NAME = "order.created"
WIDER = SubmittedSchema(type="json_schema", schema=SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1))


class Guarded:
    """Fails the test if any attribute but the allowed ones is used while the head is locked."""

    def __init__(self, target, lock, but=()):
        self._target, self._lock, self._but = target, lock, but

    def __getattr__(self, name):
        found = getattr(self._target, name)
        if name in self._but:
            return found

        def call(*args, **kwargs):
            assert not self._lock.held, f"{type(self._target).__name__}.{name} is asked under the lock"
            result = found(*args, **kwargs)
            return Guarded(result, self._lock) if name == "of" else result

        return call


class GuardedLog:
    def __init__(self, log):
        self._log, self.held, self.times = log, False, 0

    @contextlib.contextmanager
    def transaction(self):
        with self._log.transaction() as transaction:
            self.held, self.times = True, self.times + 1
            try:
                yield transaction
            finally:
                self.held = False

    def __getattr__(self, name):
        return getattr(self._log, name)


@pytest.fixture
def log(broker):
    return GuardedLog(broker.log)


@pytest.fixture
def bus(broker, log, monkeypatch):
    monkeypatch.setattr(broker, "coordinator", Guarded(broker.coordinator, log, but=("worker",)))
    bus = broker.bus_on(log, Guarded(broker.stores, log))
    monkeypatch.setattr(broker, "bus", bus)
    monkeypatch.setattr(broker.timeline_switcher, "_bus", bus)
    monkeypatch.setattr(broker.cursor_initializer, "_bus", bus)
    return bus


@pytest.mark.usefixtures("bus")
def test_no_command_calls_a_store_or_coordinator_while_the_head_of_the_log_is_locked(broker):
    broker.do(CreateStorage(storage=StorageEntry(id="other", storage_type="embedded", default=False)))
    created = broker.do(CreateEventType(spec=event_type_spec()))
    begin = (CursorSpec(event_type=NAME, partition="0", offset="BEGIN"),)
    spec = subscription_spec(read_from="cursors", initial_cursors=begin, filter="event.order_id == '1'")
    subscription, _ = broker.do(CreateSubscription(spec=spec))
    given = tuple(each.named for each in subscription.initial_cursors)
    changed = msgspec.structs.replace(spec, initial_cursors=given, filter="event.order_id == '2'")
    broker.do(ChangeSubscription(subscription_id=subscription.id, spec=changed))
    broker.do(AddSchema(name=NAME, schema=WIDER))
    broker.do(ChangeEventType(name=NAME, spec=event_type_spec(schema=WIDER, owning_application="other")))
    broker.do(SwitchFeature(feature="repartitioning", enabled=True))
    broker.timeline_switcher.switch(StartSwitch(event_type=NAME, storage_id="other"), broker.context())
    broker.do(Repartition(event_type=NAME, partition_count=2))
    left = broker.start_switch(NAME)
    broker.do(AbortSwitch(event_type=NAME, timeline=left, reason="of a test"))
    broker.do(CleanUpTimeline(event_type=NAME, order=1, now_ms=LATER_MS))
    background_jobs = broker.background_jobs()
    for _ in range(3):
        broker.clock.advance(3_600_000)
        background_jobs.tick()
    broker.do(DeleteSubscription(subscription_id=subscription.id))
    broker.do(DeleteEventType(name=NAME))
    assert created.name == NAME
    assert broker.store.topics() == broker.stores.of("other").topics() == set()


@pytest.mark.parametrize("way", ["AddSchema", "ChangeEventType"])
def test_a_schema_that_changed_during_a_check_is_checked_again(broker, monkeypatch, way):
    """The new schema is compared with the one that it replaces, not with one that was replaced meanwhile."""
    broker.do(CreateEventType(spec=event_type_spec(compatibility_mode="compatible")))
    narrower = SubmittedSchema(type="json_schema", schema=WIDER.schema.replace('"note":{"type":"string"}', '"note":{}'))
    others = iter([AddSchema(name=NAME, schema=WIDER)])

    def overtaken(function, *args, **kwargs):
        result = function(*args, **kwargs)
        for other in others:
            broker.do(other)
        return result

    monkeypatch.setitem(broker.bus._unit_of_work.keywords, "compute", overtaken)
    spec = event_type_spec(compatibility_mode="compatible", schema=narrower)
    command = AddSchema(name=NAME, schema=narrower) if way == "AddSchema" else ChangeEventType(name=NAME, spec=spec)
    with pytest.raises(Invalid, match="schema types must be the same"):
        broker.do(command)
    assert next(others, None) is None
    broker.registry.refresh()
    assert broker.registry.event_type(NAME).schema.schema == WIDER.schema


def test_a_command_overtaken_too_often_is_unavailable(broker, monkeypatch):
    steps = itertools.count()
    monkeypatch.setattr(broker.bus, "transact", lambda _command, _context: Outside(lambda: next(steps)))
    with pytest.raises(Unavailable, match="Try again later"):
        broker.do(SwitchFeature(feature="kpi_collection", enabled=True))
    assert next(steps) == STEPS_MAX
