import json

import msgspec
import pytest

from rioni.commands.event_types import ChangeEventType, CreateEventType
from rioni.commands.maintenance import UNDER_WAY_MS
from rioni.commands.publisher import PublishEvents
from rioni.domain.access.authorization import BROKER
from rioni.domain.errors import Unavailable
from rioni.domain.event_types.event_type import Options
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.domain.timelines.position import Bounds
from rioni.domain.timestamps import milliseconds
from tests.support.broker import COMPACTION_LAG_S, RETENTION_INTERVAL_S
from tests.support.builders import as_spec, event_type_spec
from tests.support.memory import SingleStore


NAME = "order.created"
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}
RETENTION_MS = 10_800_000
KEYS = {"partition_compaction_key": "a"}
WINDOW_S = 3_600


@pytest.fixture
def background_jobs(broker):
    return broker.background_jobs()


def create(broker, **changes):
    broker.do(CreateEventType(spec=event_type_spec(options=Options(retention_time=RETENTION_MS), **changes)))


def publish(broker, **metadata):
    body = json.dumps([{"order_id": "1", "metadata": METADATA | metadata}]).encode()
    published = broker.publisher.publish(PublishEvents(event_type=NAME, body=body, flow_id=""), BROKER)
    assert published.events == 1, published


def bounds(broker):
    return list(broker.store.bounds(broker.registry.timelines(NAME).active.topic))


def test_events_are_deleted_when_their_retention_time_has_passed_and_not_before(broker, background_jobs):
    """Reference timelines#expiry."""
    create(broker)
    publish(broker)
    broker.clock.advance(RETENTION_MS - 1)
    publish(broker)
    background_jobs.tick()
    assert bounds(broker) == [Bounds(0, 1)]
    broker.clock.advance(2)
    background_jobs.tick()
    assert bounds(broker) == [Bounds(0, 1)], "it has just looked"
    broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
    background_jobs.tick()
    assert bounds(broker) == [Bounds(1, 1)]


def test_compacted_events_are_kept(broker, background_jobs):
    """Reference timelines#compacted-events, timelines#kept-events."""
    create(broker, cleanup_policy="compact")
    publish(broker, **KEYS)
    broker.clock.advance(10 * RETENTION_MS)
    background_jobs.tick()
    assert bounds(broker) == [Bounds(0, 0)]


def test_superseded_events_of_a_compacted_event_type_are_removed_later(broker, background_jobs):
    """Reference timelines#compacted-events, timelines#compaction-gaps."""
    create(broker, cleanup_policy="compact")
    publish(broker, **KEYS)
    publish(broker, **KEYS)
    topic = broker.registry.timelines(NAME).active.topic

    def stored():
        (chunk,) = [chunk for chunk in broker.store.read(topic, 0, 0, 1) if chunk.first == 0]
        return chunk.cut(0, 1)

    broker.clock.advance(1_000 * COMPACTION_LAG_S)
    background_jobs.tick()
    assert stored(), "not so soon"
    broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
    background_jobs.tick()
    assert not stored()
    assert bounds(broker) == [Bounds(0, 1)]


def test_event_types_with_cleanup_policy_delete_are_not_compacted(broker, background_jobs):
    create(broker)
    publish(broker)
    topic = broker.registry.timelines(NAME).active.topic
    broker.store.append(topic, {0: [b"{}", b"{}"]}, headers={0: [Headers(key="a"), Headers(key="a")]})
    broker.clock.advance(RETENTION_MS - 1)
    background_jobs.tick()
    assert broker.store.read(topic, 0, 1, 1)[0].cut(1, 2)


class Compacted:
    """A store that records since when all events have keys, as each call of `compact` says."""

    def __init__(self, store):
        self._store, self.keyed_since_ms = store, []

    def compact(self, _topic, _before_ms, keyed_since_ms=0):
        self.keyed_since_ms.append(keyed_since_ms)

    def __getattr__(self, name):
        return getattr(self._store, name)


@pytest.mark.parametrize("policy", ["compact", "compact_and_delete"])
def test_a_timeline_compacted_from_its_start_has_keys_in_all_events(broker, policy):
    create(broker, cleanup_policy=policy)
    store = Compacted(broker.store)
    background_jobs = broker.background_jobs(SingleStore(store))
    broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
    background_jobs.tick()
    assert store.keyed_since_ms == [0]


def test_a_timeline_compacted_since_a_change_may_have_older_events_without_keys(broker):
    create(broker)
    broker.registry.refresh()
    spec = as_spec(broker.registry.event_type(NAME))
    broker.do(ChangeEventType(name=NAME, spec=msgspec.structs.replace(spec, cleanup_policy="compact_and_delete")))
    store = Compacted(broker.store)
    background_jobs = broker.background_jobs(SingleStore(store))
    broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
    background_jobs.tick()
    changed_ms = milliseconds(broker.registry.event_type(NAME).updated_at)
    assert store.keyed_since_ms == [changed_ms + UNDER_WAY_MS]


def test_idempotency_keys_expire_when_the_window_is_over(broker, background_jobs):
    """Reference publishing#idempotency-keys, operations#background-jobs."""
    create(broker)
    publish(broker)
    broker.store.append(
        broker.registry.timelines(NAME).active.topic, {0: [b"{}"]}, claim=IdempotencyClaim("name", "digest")
    )
    broker.clock.advance(1_000 * WINDOW_S)
    background_jobs.tick()
    assert broker.store.claimed("name") == "digest"
    broker.clock.advance(1_000 * RETENTION_INTERVAL_S)
    background_jobs.tick()
    assert broker.store.claimed("name") is None


def test_event_ids_expire_when_the_window_is_over(broker, background_jobs):
    """Reference publishing#event-ids."""
    create(broker)
    publish(broker)
    topic = broker.registry.timelines(NAME).active.topic

    def stored_again_after(ms):
        broker.clock.advance(ms)
        background_jobs.tick()
        return bool(broker.store.append(topic, {0: [b"{}"]}, ids={0: ["a"]}))

    assert stored_again_after(0)
    assert not stored_again_after(1_000 * WINDOW_S)
    assert stored_again_after(1_000 * RETENTION_INTERVAL_S)


def test_a_job_that_fails_is_retried(broker):
    """Reference operations#background-jobs."""

    class FailingOnce:
        calls = 0

        def delete_before(self, topic, before_ms):
            self.calls += 1
            if self.calls == 1:
                raise Unavailable("the disk is full")
            return broker.store.delete_before(topic, before_ms)

        def expire_ids(self, before_ms):
            broker.store.expire_ids(before_ms)

    create(broker)
    publish(broker)
    store = FailingOnce()
    background_jobs = broker.background_jobs(SingleStore(store))
    for _ in range(2):
        broker.clock.advance(RETENTION_MS + 1)
        background_jobs.tick()
    assert store.calls == 2
    assert bounds(broker) == [Bounds(1, 0)]
