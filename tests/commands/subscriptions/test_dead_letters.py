"""Storing dead letters and redriving them (reference streams#dead-letter-handling).

Source: reference system-event-types#dead-letter-queue.
"""

import pytest

from rioni.commands.event_types import CreateEventType
from rioni.commands.subscriptions.dead_letters import DeadLetterQueue, DeadLetterRedriver, RedriveDeadLetters, Redriven
from rioni.commands.subscriptions.subscriptions import CreateSubscription
from rioni.domain.access.authorization import UNAUTHENTICATED, Attribute
from rioni.domain.publishing.headers import Headers
from rioni.domain.streaming.batching import Slice
from rioni.domain.subscriptions.dead_letter_policy import DeadLetterFilter
from rioni.domain.subscriptions.subscription import SubscriptionSpec
from rioni.domain.system.storages import DEFAULT_STORAGE
from rioni.domain.system.system_event_types import DEAD_LETTER_QUEUE, Ownership, dead_letter_queue
from rioni.domain.timelines.position import EventTypePartition
from tests.support.broker import DEFAULT_ADMIN
from tests.support.builders import event_type_spec
from tests.support.memory import chunk


EVENT = b'{"order_id" : "1", "metadata":{"eid":"x"},"n":1.50,"u":"\\u00e9"}'
ANYTHING = DeadLetterFilter()


@pytest.fixture
def subscription(broker):
    broker.do(
        CreateEventType(
            spec=dead_letter_queue(Ownership(readers=DEFAULT_ADMIN, admins=DEFAULT_ADMIN), broker.limits).spec
        )
    )
    broker.do(CreateEventType(spec=event_type_spec(name="a")))
    created, _ = broker.do(CreateSubscription(spec=SubscriptionSpec(owning_application="x", event_types=("a",))))
    broker.registry.refresh()
    return created.id


@pytest.fixture
def queue(broker):
    return DeadLetterQueue(broker.system_event_types, broker.services.system_publisher, broker.clock)


@pytest.fixture
def dead_letters(broker):
    return DeadLetterRedriver(
        broker.registry, broker.access, broker.bus, stores=broker.stores, timeline=broker.timeline
    )


def keep(queue, subscription, *positions, event=EVENT, headers=None):
    for position in positions:
        one = Slice(1, chunk(position, [event], headers=headers), position, position + 1)
        queue.keep(subscription, EventTypePartition("a", "0"), one, 3)


def stored(broker, name):
    timeline = broker.registry.timelines(name).active
    chunks = broker.stores.of(DEFAULT_STORAGE).read(timeline.topic, 0, 0, 1_000_000)
    return [
        (one.cut(position, position + 1), one.headers[position - one.first] if one.headers else None)
        for one in chunks
        for position in range(one.first, one.next)
    ]


def redrive(broker, dead_letters, subscription, limit=10, wanted=ANYTHING, **options):
    command = RedriveDeadLetters(subscription_id=subscription, wanted=wanted, limit=limit, **options)
    return dead_letters.redrive(command, broker.context())


def test_a_dead_letter_stored_again_after_a_crash_is_stored_once(broker, queue, subscription):
    keep(queue, subscription, 4, 4, 5, 4)
    assert len(stored(broker, DEAD_LETTER_QUEUE)) == 2


def test_an_event_is_published_again_byte_by_byte_for_its_subscription_and_owner(
    broker, queue, dead_letters, subscription
):
    """Reference streams#redrive, system-event-types#dead-letter-event."""
    owner = Attribute("team", "a")
    keep(queue, subscription, 4, headers=[Headers(owner=owner, key="k")])
    assert redrive(broker, dead_letters, subscription) == Redriven(redriven=1)
    assert stored(broker, "a") == [(EVENT, Headers(owner=owner, subscription_id=subscription))]


def test_redriven_dead_letters_are_left_out_and_do_not_count_for_the_limit(broker, queue, dead_letters, subscription):
    """Reference streams#redrive."""
    keep(queue, subscription, 4, 5, 6)
    assert redrive(broker, dead_letters, subscription, limit=1) == Redriven(redriven=1)
    assert redrive(broker, dead_letters, subscription, limit=1) == Redriven(redriven=1, already_redriven=1)
    assert redrive(broker, dead_letters, subscription) == Redriven(redriven=1, already_redriven=2)
    assert redrive(broker, dead_letters, subscription) == Redriven(already_redriven=3)
    assert redrive(broker, dead_letters, subscription, limit=2, force=True) == Redriven(redriven=2)
    assert len(stored(broker, "a")) == 5


def test_an_event_of_the_maximum_depth_is_kept(broker, queue, subscription):
    event = b'{"a":' + b"[" * 63 + b"]" * 63 + b"}"
    keep(queue, subscription, 4, event=event)
    assert event in stored(broker, DEAD_LETTER_QUEUE)[0][0]


def test_dead_letters_of_other_subscriptions_are_not_shown(broker, queue, dead_letters, subscription):
    other, _ = broker.do(CreateSubscription(spec=SubscriptionSpec(owning_application="y", event_types=("a",))))
    broker.registry.refresh()
    keep(queue, subscription, 4)
    assert dead_letters.page(other.id, ANYTHING, 10, UNAUTHENTICATED) == []
    (kept,) = dead_letters.page(subscription, ANYTHING, 10, UNAUTHENTICATED)
    assert bytes(kept.letter.event) == EVENT
