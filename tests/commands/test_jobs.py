import json

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.jobs import RETENTION_EVERY_S, Housekeeper
from rioni.commands.publishing import PublishEvents
from rioni.domain.authorization import BROKER
from rioni.domain.errors import Unavailable
from rioni.domain.event_type import Options
from rioni.domain.ports import Bounds
from tests.support.builders import event_type_spec


NAME = "order.created"
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}
RETENTION_MS = 10_800_000
KEYS = {"partition_compaction_key": "a"}


@pytest.fixture
def housekeeper(broker):
    return Housekeeper(broker.registry, broker.store, broker.coordinator, broker.clock)


def create(broker, **changes):
    broker.do(CreateEventType(spec=event_type_spec(options=Options(retention_time=RETENTION_MS), **changes)))


def publish(broker, **metadata):
    body = json.dumps([{"order_id": "1", "metadata": METADATA | metadata}]).encode()
    published = broker.publisher.publish(PublishEvents(event_type=NAME, body=body, flow_id=""), BROKER)
    assert published.events == 1, published


def bounds(broker):
    return list(broker.store.bounds(broker.registry.timelines(NAME).active.topic))


def test_events_go_when_their_retention_time_is_over_and_not_before(broker, housekeeper):
    create(broker)
    publish(broker)
    broker.clock.advance(RETENTION_MS - 1)
    publish(broker)
    housekeeper.tick()
    assert bounds(broker) == [Bounds(0, 1)]
    broker.clock.advance(2)
    housekeeper.tick()
    assert bounds(broker) == [Bounds(0, 1)], "it has just looked"
    broker.clock.advance(int(RETENTION_EVERY_S * 1_000))
    housekeeper.tick()
    assert bounds(broker) == [Bounds(1, 1)]


def test_compacted_events_are_kept(broker, housekeeper):
    create(broker, cleanup_policy="compact")
    publish(broker, **KEYS)
    broker.clock.advance(10 * RETENTION_MS)
    housekeeper.tick()
    assert bounds(broker) == [Bounds(0, 0)]


def test_a_job_that_fails_is_tried_again(broker):
    class FailingOnce:
        calls = 0

        def expire(self, topic, before_ms):
            self.calls += 1
            if self.calls == 1:
                raise Unavailable("the disk is full")
            return broker.store.expire(topic, before_ms)

    create(broker)
    publish(broker)
    store = FailingOnce()
    housekeeper = Housekeeper(broker.registry, store, broker.coordinator, broker.clock)
    for _ in range(2):
        broker.clock.advance(RETENTION_MS + 1)
        housekeeper.tick()
    assert store.calls == 2
    assert bounds(broker) == [Bounds(1, 0)]
