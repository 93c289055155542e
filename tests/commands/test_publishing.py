import json

import pytest

from rioni.commands.event_types import CreateEventType, DeleteEventType
from rioni.commands.publishing import PublishEvents
from rioni.commands.settings import AddBlacklistEntry
from rioni.domain.authorization import BROKER, Attribute, EventTypeAuthorization, Subject
from rioni.domain.errors import Blocked, Denied, EventTypeNotFound, Malformed
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
    assert (published.events, published.refused) == (2, ())
    assert [event["order_id"] for event in stored(broker)] == ["1", "2"]


def test_a_refused_batch_stores_nothing(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    published = publish(broker, {"order_id": "1", "metadata": METADATA}, {"order_id": 2, "metadata": METADATA})
    assert published.events == 0
    assert [item.publishing_status for item in published.refused] == ["aborted", "failed"]
    assert stored(broker) == []


def test_what_can_not_be_read_is_refused_before_anything_else(broker):
    for body in (b"", b"{", b"{}"):
        with pytest.raises(Malformed):
            broker.publisher.publish(PublishEvents(event_type="nope", body=body, flow_id=""), BROKER)
    with pytest.raises(EventTypeNotFound):
        publish(broker, name="nope")


def test_only_writers_and_administrators_publish(broker):
    lists = EventTypeAuthorization(admins=(ALICE,), readers=(ALICE,), writers=(ALICE,))
    broker.do(CreateEventType(spec=event_type_spec(authorization=lists)))
    with pytest.raises(Denied, match=f"Access on WRITE event-type:{NAME} denied"):
        publish(broker, subject=Subject(name="bob"))
    for attribute in (ALICE, DEFAULT_ADMIN):
        publish(broker, subject=Subject(name="x", attributes=frozenset({attribute})))


@pytest.mark.parametrize("entry", [("PRODUCER_ET", NAME), ("PRODUCER_APP", "rioni")])
def test_the_blacklist_holds_from_the_next_batch_on(broker, entry):
    broker.do(CreateEventType(spec=event_type_spec()))
    publish(broker)
    broker.do(AddBlacklistEntry(type=entry[0], name=entry[1]))
    with pytest.raises(Blocked):
        publish(broker)


def test_a_deletion_holds_from_the_next_batch_on(broker):
    broker.do(CreateEventType(spec=event_type_spec()))
    publish(broker)
    broker.do(DeleteEventType(name=NAME))
    with pytest.raises(EventTypeNotFound):
        publish(broker)
