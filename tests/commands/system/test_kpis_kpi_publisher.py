"""Measurements become KPI events exactly once, even if the process that measures or publishes dies."""

import itertools

import pytest

from rioni.commands.event_types import AddSchema, ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.subscriptions.subscriptions import ChangeSubscription, CreateSubscription, DeleteSubscription
from rioni.commands.system.kpis import UsageRecorder
from rioni.commands.system.storages import SwitchFeature
from rioni.commands.system.system_events import LogConsumer
from rioni.domain.access.authorization import EVERYBODY, EventTypeAuthorization
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.event_type import SubmittedSchema
from rioni.domain.kpis import (
    ACCESS_LOG,
    BATCH_PUBLISHED,
    DATA_STREAMED,
    EVENT_TYPE_LOG,
    SUBSCRIPTION_LOG,
    BatchPublished,
    BatchStreamed,
    RequestServed,
    event_type_reports,
    subscription_reports,
)
from rioni.domain.system.system_events import ACCESS_FEATURE, KPI_FEATURE
from tests.support.builders import SCHEMA, event_type_spec, subscription_spec


ON, ACCESS_ON = (SwitchFeature(feature=feature, enabled=True) for feature in (KPI_FEATURE, ACCESS_FEATURE))
NAME = "order.created"
CREATE = CreateEventType(spec=event_type_spec())


def published(count):
    return BatchPublished(
        at_ms=1_700_000_000_000,
        event_type=NAME,
        app="shop",
        token_realm="",
        number_of_events=count,
        ms_spent=1,
        batch_size=100,
    )


def streamed(stream="a"):
    return BatchStreamed(
        at_ms=1_700_000_000_000,
        stream=stream,
        api="lola",
        subscription=None,
        event_type=NAME,
        app="shop",
        token_realm="",
        number_of_events=2,
        bytes_streamed=50,
    )


ACCESSED = RequestServed(
    at_ms=1_700_000_000_000,
    flow_id="flow",
    method="GET",
    path="/",
    query="",
    user_agent="-",
    app="shop",
    status_code=200,
    response_time_ms=1,
    accept_encoding="-",
    content_encoding="-",
    request_length=0,
    response_length=2,
)


class Worker:
    """The measuring part of a worker process."""

    def __init__(self, broker):
        self.dropped = 0
        self.spools = broker.spools()
        self.usage = UsageRecorder(broker.registry, self.spools, self._drop)
        self.feed = broker.kpi_feed(self.usage)

    def _drop(self, count):
        self.dropped += count

    def die(self):
        """Die: the locks of the process are released."""
        for spool in self.spools:
            spool.close()


@pytest.fixture
def worker(broker):
    broker.do(ON)
    broker.registry.refresh()
    worker = Worker(broker)
    yield worker
    worker.die()


def counts(broker):
    return sorted(event["number_of_events"] for event in broker.events(BATCH_PUBLISHED))


def test_measurements_are_published_within_a_second_and_once(broker, worker):
    """Reference system-event-types#measurements."""
    for count in (1, 2):
        worker.usage.published(published(count))
    worker.feed.tick()
    worker.usage.published(published(3))
    worker.feed.tick()
    assert counts(broker) == [1, 2]
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert counts(broker) == [1, 2, 3]


def test_open_streams_are_reported_at_intervals(broker, worker):
    """Reference system-event-types#measurements, system-event-types#data-streamed."""
    worker.feed.tick()
    for stream in "aab":
        worker.usage.streamed(streamed(stream))
    broker.clock.advance(29_000)
    worker.feed.tick()
    broker.system_event_types.ensure()
    assert broker.events(DATA_STREAMED) == []
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert sorted(event["batches_streamed"] for event in broker.events(DATA_STREAMED)) == [1, 2]


def test_streams_are_reported_within_a_second_of_an_end(broker, worker):
    """Reference system-event-types#measurements, system-event-types#data-streamed."""
    worker.feed.tick()
    for stream in "aab":
        worker.usage.streamed(streamed(stream))
    worker.usage.stream_ended()
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert sorted(event["batches_streamed"] for event in broker.events(DATA_STREAMED)) == [1, 2]
    worker.usage.streamed(streamed("b"))
    broker.clock.advance(29_000)
    worker.feed.tick()
    assert len(broker.events(DATA_STREAMED)) == 2
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert len(broker.events(DATA_STREAMED)) == 3


def test_streams_that_end_often_have_many_others_reported_seldom(broker, worker):
    worker.feed.tick()

    def reported_after(milliseconds):
        for number in range(500):
            worker.usage.streamed(streamed(str(number)))
        worker.usage.stream_ended()
        broker.clock.advance(milliseconds)
        worker.feed.tick()
        return len(broker.events(DATA_STREAMED))

    assert reported_after(1_000) == 500
    assert reported_after(4_000) == 500
    assert reported_after(1_000) == 1_000


def test_more_measurements_than_fit_a_batch_are_published_in_several(broker, worker):
    for count in range(250):
        worker.usage.published(published(count))
    worker.feed.tick()
    assert counts(broker) == list(range(250))


@pytest.mark.parametrize("deaths", range(1, 4))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_that_dies_around_storing_neither_loses_nor_duplicates_events(
    broker, worker, monkeypatch, moment, deaths
):
    """Reference system-event-types#exactly-once."""
    broker.system_event_types.ensure()
    for count in range(250):
        worker.usage.published(published(count))
    store = type(broker.store)
    append, calls = store.append, itertools.count(1)

    def dying(*args, **kwargs):
        fatal = next(calls) == deaths
        if not fatal or moment == "after":
            append(*args, **kwargs)
        if fatal:
            raise Unavailable(moment)

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", dying)
        worker.feed.tick()
    worker.die()
    other = Worker(broker)
    other.feed.tick()
    other.die()
    assert counts(broker) == list(range(250))


def test_failed_publishing_is_retried(broker, worker):
    worker.usage.published(published(1))
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=True))
    worker.feed.tick()
    broker.do(SwitchFeature(feature="disable_db_write_operations", enabled=False))
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert counts(broker) == [1]


def test_the_spool_of_a_dead_process_is_published_by_another_process(broker, worker):
    """Reference system-event-types#measurements."""
    other = Worker(broker)
    other.usage.published(published(1))
    worker.usage.published(published(2))
    worker.feed.tick()
    assert counts(broker) == [2]
    other.die()
    broker.clock.advance(1_000)
    worker.feed.tick()
    assert counts(broker) == [1, 2]


def test_measurements_dropped_for_lack_of_space_are_counted(broker, worker, monkeypatch):
    """Reference system-event-types#measurements."""
    monkeypatch.setattr(worker.spools.requests, "append", lambda _line: False)
    worker.usage.published(published(1))
    assert worker.dropped == 1


def test_damaged_lines_are_counted(broker, worker):
    worker.spools.requests.append(b"\0\0\n")
    worker.feed.tick()
    assert worker.dropped == 1


def test_requests_are_reported_with_their_flow_id(broker, worker):
    worker.usage.accessed(ACCESSED)
    worker.feed.tick()
    (event,) = broker.events(ACCESS_LOG)
    assert (event["status_code"], event["metadata"]["flow_id"]) == (200, "flow")


@pytest.mark.parametrize(
    ("commands", "measures", "accesses"),
    [([], False, False), ([ON], True, False), ([ACCESS_ON], False, True), ([ON, ACCESS_ON], True, True)],
)
def test_features_decide_what_is_measured(broker, commands, measures, accesses):
    for command in commands:
        broker.do(command)
    broker.registry.refresh()
    meters = Worker(broker).usage
    assert (meters.on, meters.access_on) == (measures, accesses)


# --- events about changes in the log ---


WIDER = SubmittedSchema(type="json_schema", schema=SCHEMA.replace("}}", '},"note":{"type":"string"}}', 1))
SECTION = EventTypeAuthorization(admins=(EVERYBODY,), readers=(EVERYBODY,), writers=(EVERYBODY,))
EVENT_TYPE_CASES = [
    ([], CREATE, "created", "disabled"),
    ([], CreateEventType(spec=event_type_spec(authorization=SECTION)), "created", "enabled"),
    ([CREATE], ChangeEventType(name=NAME, spec=event_type_spec(owning_application="other")), "updated", "disabled"),
    ([CREATE], ChangeEventType(name=NAME, spec=event_type_spec(authorization=SECTION)), "updated", "enabled"),
    (
        [CREATE],
        ChangeEventType(name=NAME, spec=event_type_spec(authorization=SECTION, schema=WIDER)),
        "updated",
        "enabled",
    ),
    ([CREATE], AddSchema(name=NAME, schema=WIDER), "updated", "disabled"),
    ([CREATE], DeleteEventType(name=NAME), "deleted", "disabled"),
]


def reported(broker, event_type, events, *, setup, command):
    """The events that a log consumer derives from a command."""
    for each in setup:
        broker.do(each)
    feeds = broker.feeds(LogConsumer(event_type, KPI_FEATURE, events))
    broker.do(ON)
    feeds.tick()
    broker.system_event_types.ensure()
    before = len(broker.events(event_type))
    broker.do(command)
    feeds.tick()
    feeds.close()
    return [
        {name: value for name, value in event.items() if name != "metadata"}
        for event in broker.events(event_type)[before:]
        if event.get("event_type", NAME) == NAME
    ]


@pytest.mark.parametrize(("setup", "command", "status", "authz"), EVENT_TYPE_CASES)
def test_each_change_of_an_event_type_is_reported_once(broker, setup, command, status, authz):
    """Reference system-event-types#event-type-log."""
    assert reported(broker, EVENT_TYPE_LOG, event_type_reports, setup=setup, command=command) == [
        {
            "event_type": NAME,
            "status": status,
            "category": "business",
            "authz": authz,
            "compatibility_mode": "FORWARD",
        }
    ]


def test_creating_and_deleting_a_subscription_is_reported_and_changing_it_is_not(broker):
    """Reference system-event-types#subscription-log."""
    broker.do(CREATE)
    subscription, _ = broker.do(CreateSubscription(spec=subscription_spec()))
    change = ChangeSubscription(subscription_id=subscription.id, spec=subscription_spec(annotations={"a": "b"}))
    again = subscription_spec(consumer_group="again")
    for command, expected in (
        (change, []),
        (DeleteSubscription(subscription_id=subscription.id), [(subscription.id, "deleted")]),
        (CreateSubscription(spec=again), [(None, "created")]),
    ):
        found = reported(broker, SUBSCRIPTION_LOG, subscription_reports, setup=[], command=command)
        assert [each["status"] for each in found] == [status for _, status in expected]
        assert all(wanted in (None, each["subscription_id"]) for each, (wanted, _) in zip(found, expected, strict=True))
