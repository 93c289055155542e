"""Retention, and above all which events it keeps: while retention times change, and while timelines are switched."""

import contextlib
import json

import pytest
import structlog

from rioni.commands.event_types import ChangeEventType, CreateEventType, DeleteEventType
from rioni.commands.publisher import PublishEvents
from rioni.commands.timelines.timelines import CleanUpTimeline, StartSwitch
from rioni.domain.access.authorization import BROKER
from rioni.domain.errors import EventTypeNotFound, Unavailable
from rioni.domain.event_types.event_type import Options
from rioni.domain.timelines.position import Bounds
from rioni.domain.timestamps import milliseconds
from tests.support.builders import LATER_MS, event_type_spec
from tests.support.memory import SingleStore


NAMES = ["order.created", "order.shipped"]
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}
SHORT_MS, LONG_MS = 10_800_000, 100_000_000


def spec(name, retention_ms, **changes):
    return event_type_spec(name=name, options=Options(retention_time=retention_ms), **changes)


def keep(broker, name, retention_ms):
    broker.do(ChangeEventType(name=name, spec=spec(name, retention_ms)))


def switch(broker, name):
    broker.timeline_switcher.switch(StartSwitch(event_type=name, storage_id="default"), broker.context())


def publish(broker, name):
    body = json.dumps([{"order_id": "1", "metadata": METADATA}]).encode()
    assert broker.publisher.publish(PublishEvents(event_type=name, body=body, flow_id=""), BROKER).events == 1


def timelines(broker, name):
    broker.registry.refresh()
    return broker.registry.timelines(name)


def held(broker, name):
    """The contents of the timelines that still have events."""
    return [broker.store.bounds(each.topic)[0] for each in timelines(broker, name).readable]


@pytest.fixture(autouse=True)
def now(broker):
    """The time of the commands, used for events too."""
    for name in NAMES:
        broker.do(CreateEventType(spec=spec(name, SHORT_MS)))
    created_ms = milliseconds(timelines(broker, NAMES[0]).active.created_at)
    broker.clock.advance(created_ms - broker.clock.now_ms())


class Interrupted:
    """A store that runs a callback whenever it has deleted expired events from a topic."""

    def __init__(self, store, act):
        self._store, self._act = store, act

    def delete_before(self, topic, before_ms):
        removed = self._store.delete_before(topic, before_ms)
        self._act()
        return removed

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_a_retention_time_raised_during_a_run_applies_to_the_remaining_events(broker):
    for name in NAMES:
        publish(broker, name)
        switch(broker, name)
        publish(broker, name)
    broker.clock.advance(SHORT_MS + 60_000)
    store = Interrupted(broker.store, lambda: keep(broker, NAMES[1], LONG_MS))
    broker.background_jobs(SingleStore(store)).expire()
    assert held(broker, NAMES[0]) == [Bounds(1, 0)]
    assert held(broker, NAMES[1]) == [Bounds(0, 0)] * 2


@pytest.mark.parametrize("retention_ms", [2 * LATER_MS, 2**63 - 1, 2**64 - 1])
def test_a_retention_time_that_begins_before_the_epoch_keeps_all(broker, retention_ms):
    """Broker administrators may set any; stores take no time before the epoch, or give it another meaning."""
    publish(broker, NAMES[0])
    keep(broker, NAMES[0], retention_ms)
    asked = []

    class Asked(Interrupted):
        def delete_before(self, topic, before_ms):
            asked.append(before_ms)
            return super().delete_before(topic, before_ms)

    broker.background_jobs(SingleStore(Asked(broker.store, lambda: None))).expire()
    assert (held(broker, NAMES[0]), min(asked)) == ([Bounds(0, 0)], 0)


def test_a_timeline_is_not_deleted_by_a_retention_time_that_was_just_raised(broker):
    publish(broker, NAMES[0])
    switch(broker, NAMES[0])
    broker.clock.advance(SHORT_MS + 60_000)
    keep(broker, NAMES[0], LONG_MS)
    broker.do(CleanUpTimeline(event_type=NAMES[0], order=1, now_ms=broker.clock.now_ms()))
    assert held(broker, NAMES[0])[0] == Bounds(0, 0)
    broker.do(CleanUpTimeline(event_type=NAMES[0], order=1, now_ms=LATER_MS))
    assert held(broker, NAMES[0]) == [Bounds(0, -1)]


def test_an_event_of_a_closed_timeline_is_kept_as_long_as_others_though_the_switch_took_long(broker):
    """The switch is recorded with the time at which it was requested."""
    broker.clock.advance(60_000)
    publish(broker, NAMES[0])
    switch(broker, NAMES[0])
    closed_ms = milliseconds(timelines(broker, NAMES[0]).active.switched_at)
    assert closed_ms < broker.clock.now_ms(), "the clock of the commands is behind"
    broker.clock.advance(SHORT_MS)
    broker.background_jobs().expire()
    assert held(broker, NAMES[0])[0] == Bounds(0, 0)
    broker.clock.advance(1)
    broker.background_jobs().expire()
    assert held(broker, NAMES[0]) == [Bounds(0, -1)]


def test_an_expired_timeline_is_deleted_though_its_storage_is_unavailable(broker):
    publish(broker, NAMES[0])
    switch(broker, NAMES[0])

    def fail():
        raise Unavailable("it is away")

    broker.clock.advance(SHORT_MS)
    background_jobs = broker.background_jobs(SingleStore(Interrupted(broker.store, fail)))
    with structlog.testing.capture_logs() as logged:
        background_jobs.expire()
    assert logged
    assert {(line["reason"], line["exc_info"]) for line in logged} == {("it is away", False)}
    assert len(timelines(broker, NAMES[0]).readable) == 2
    broker.clock.advance(60_000)
    background_jobs.expire()
    assert len(timelines(broker, NAMES[0]).readable) == 1


def test_an_event_type_deleted_during_a_run_is_no_failure(broker):
    def act():
        with contextlib.suppress(EventTypeNotFound):  # it is deleted
            broker.do(DeleteEventType(name=NAMES[1]))

    with structlog.testing.capture_logs() as logged:
        broker.background_jobs(SingleStore(Interrupted(broker.store, act))).expire()
    assert logged == []
