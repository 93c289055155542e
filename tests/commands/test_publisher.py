import json
from random import Random

import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.publisher import OBJECTS_SOON, DeleteEvents, Publisher, PublishEvents
from rioni.commands.system.storages import AddBlacklistEntry, SwitchFeature
from rioni.domain.access.authorization import BROKER, Attribute, EventTypeAuthorization, Subject
from rioni.domain.errors import AccessDenied, Blocked, EventTypeNotFound, Malformed
from rioni.domain.event_types.event_type import EventOwnerSelector
from rioni.domain.publishing.batch import split
from rioni.domain.publishing.headers import Headers
from rioni.domain.publishing.pipeline import prepare
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec


NAME = "order.created"
METADATA = {"eid": "0d1b6f0e-3c52-4d8c-9b50-0f2b7f6d2a11", "occurred_at": "2026-11-20T10:00:00Z"}
ALICE = Attribute("user", "alice")


def publish(broker, *events, subject=BROKER, name=NAME):
    body = json.dumps(events).encode()
    return broker.publisher.publish(PublishEvents(event_type=name, body=body, flow_id="flow"), subject)


def stored(broker):
    topic = broker.registry.timelines(NAME).active.topic
    chunks = broker.store.read(topic, 0, 0, 1_000_000)
    return [event for chunk in chunks for event in json.loads(b"[" + chunk.cut(chunk.first, chunk.next) + b"]")]


def test_a_batch_is_stored_as_a_whole(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    published = publish(broker, {"order_id": "1", "metadata": METADATA}, {"order_id": "2", "metadata": METADATA})
    assert (published.events, published.rejected) == (2, ())
    assert [event["order_id"] for event in stored(broker)] == ["1", "2"]


def test_a_rejected_batch_stores_nothing(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    published = publish(broker, {"order_id": "1", "metadata": METADATA}, {"order_id": 2, "metadata": METADATA})
    assert published.events == 0
    assert [item.publishing_status for item in published.rejected] == ["aborted", "failed"]
    assert stored(broker) == []


def test_a_large_batch_is_read_and_prepared_in_the_thread_pool(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    offloaded = []

    def run_in_pool(function, *arguments):
        offloaded.append(function)
        return function(*arguments)

    publisher = Publisher(
        broker.registry, broker.access, broker.timeline, broker.clock, Random(1), broker.limits, run_in_pool
    )
    events = [{"order_id": str(number), "metadata": METADATA} for number in range(OBJECTS_SOON // 2 + 1)]
    for batch, expected in (events[:1], []), (events, [split, prepare]):
        command = PublishEvents(event_type=NAME, body=json.dumps(batch).encode(), flow_id="")
        assert publisher.publish(command, BROKER).events == len(batch)
        assert offloaded == expected


def test_an_unparsable_body_is_rejected_before_any_other_check(broker):
    for body in (b"", b"{", b"{}"):
        with pytest.raises(Malformed):
            broker.publisher.publish(PublishEvents(event_type="nope", body=body, flow_id=""), BROKER)
    with pytest.raises(EventTypeNotFound):
        publish(broker, name="nope")


def test_only_writers_and_administrators_publish(broker):
    lists = EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec(authorization=lists)))
    with pytest.raises(AccessDenied, match=f"Access on WRITE event-type:{NAME} denied"):
        publish(broker, subject=Subject(name="bob"))
    for attribute in (ALICE, DEFAULT_ADMIN):
        publish(broker, subject=Subject(name="x", attributes=frozenset({attribute})))


@pytest.mark.parametrize("entry", [("PRODUCER_ET", NAME), ("PRODUCER_APP", "rioni")])
def test_the_blacklist_applies_from_the_next_batch_on(broker, entry):
    broker.do(CreateEventType(spec=event_type_spec()))
    publish(broker)
    broker.do(AddBlacklistEntry(type=entry[0], name=entry[1]))
    with pytest.raises(Blocked):
        publish(broker)


def test_a_deleted_event_type_rejects_the_next_batch(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    publish(broker)
    broker.do(DeleteEventType(name=NAME))
    with pytest.raises(EventTypeNotFound):
        publish(broker)


# --- event owners, and events for one subscription ---

ACME = Attribute("retailer", "acme")
SELECTOR = EventOwnerSelector(type="path", name="retailer", value="order_id")


def headers(broker):
    topic = broker.registry.timelines(NAME).active.topic
    return [each for chunk in broker.store.read(topic, 0, 0, 1_000_000) for each in chunk.headers or ()]


def switch(broker, feature, *, on=True):
    broker.do(SwitchFeature(feature=feature, enabled=on))


def test_owners_are_extracted_only_while_the_feature_is_on(broker):
    broker.do(CreateEventType(spec=event_type_spec(event_owner_selector=SELECTOR)))
    event = {"order_id": "acme", "metadata": METADATA}
    bob, acme = Subject(name="bob"), Subject(name="acme", attributes=frozenset({ACME}))
    assert publish(broker, event, subject=bob).events == 1
    assert headers(broker) == []
    switch(broker, "event_owner_selector_authz")
    (result,) = publish(broker, event, subject=bob).rejected
    assert (result.step, result.detail) == ("validating", f"Access on WRITE event:{METADATA['eid']} denied")
    for subject in (acme, Subject(name="admin", attributes=frozenset({DEFAULT_ADMIN})), BROKER):
        assert publish(broker, event, subject=subject).events == 1
    assert headers(broker) == [Headers(owner=ACME)] * 3
    switch(broker, "event_owner_selector_authz", on=False)
    assert publish(broker, event, subject=bob).events == 1


def test_the_owner_may_be_the_publisher(broker):
    selector = EventOwnerSelector(type="path", name="retailer", value="metadata.published_by")
    broker.do(CreateEventType(spec=event_type_spec(event_owner_selector=selector)))
    switch(broker, "event_owner_selector_authz")
    event = {"order_id": "1", "metadata": METADATA}
    assert publish(broker, event, subject=Subject(name="acme", attributes=frozenset({ACME}))).events == 1
    (result,) = publish(broker, event, subject=Subject(name="bob")).rejected
    assert (result.step, result.detail) == ("enriching", f"Access on WRITE event:{METADATA['eid']} denied")
    assert headers(broker) == [Headers(owner=ACME)]


def test_a_batch_may_be_for_one_subscription(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    body = json.dumps([{"order_id": "1", "metadata": METADATA}]).encode()
    command = PublishEvents(event_type=NAME, body=body, flow_id="", subscription_id=METADATA["eid"])
    assert broker.publisher.publish(command, BROKER).events == 1
    assert headers(broker) == [Headers(subscription_id=METADATA["eid"])]


# --- deletions ---


def delete(broker, *events, subject=BROKER):
    body = json.dumps(events).encode()
    return broker.publisher.delete(DeleteEvents(event_type=NAME, body=body, flow_id=""), subject)


def test_deletions_are_stored_as_tombstones_with_their_key(broker):
    broker.do(CreateEventType(spec=event_type_spec(cleanup_policy="compact")))
    keyed = {"order_id": "1", "metadata": {**METADATA, "partition_compaction_key": "k"}}
    assert publish(broker, keyed).events == 1
    assert delete(broker, keyed, {"metadata": {"partition_compaction_key": "l"}}).events == 2
    assert headers(broker) == [Headers(key="k"), Headers(key="k"), Headers(key="l")]
    (chunk,) = broker.store.read(broker.registry.timelines(NAME).active.topic, 0, 1, 1_000)[-1:]
    assert chunk.cut(1, 3).replace(b",", b"") == b""


def test_deleting_needs_the_same_rights_as_publishing(broker):
    lists = EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec(cleanup_policy="compact", authorization=lists)))
    with pytest.raises(AccessDenied, match=f"Access on WRITE event-type:{NAME} denied"):
        delete(broker, subject=Subject(name="bob"))
    broker.do(AddBlacklistEntry(type="PRODUCER_ET", name=NAME))
    with pytest.raises(Blocked):
        delete(broker)


def test_a_rejected_deletion_stores_nothing(broker):
    broker.do(CreateEventType(spec=event_type_spec(cleanup_policy="compact")))
    deleted = delete(broker, {"metadata": {"partition_compaction_key": "k"}}, {})
    assert [item.publishing_status for item in deleted.rejected] == ["aborted", "failed"]
    assert headers(broker) == []


# --- the order of the checks ---


def test_a_malformed_batch_is_reported_before_a_missing_right(broker):
    lists = EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec(authorization=lists)))
    with pytest.raises(Malformed):
        broker.publisher.publish(PublishEvents(event_type=NAME, body=b"{", flow_id=""), Subject(name="bob"))
