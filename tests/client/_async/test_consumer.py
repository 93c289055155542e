"""Consumers against a broker: what is delivered, committed, retried and left."""

import asyncio
import itertools
import logging
import threading
import time

import msgspec
import pytest

from rioni.client import (
    Client,
    CursorSpecification,
    NotFound,
    StreamPartition,
    Subscription,
    Unprocessable,
    _async,
    _sync,
)


EID = "00000000-0000-4000-8000-{:012d}"


class Numbered(msgspec.Struct):
    number: int


@pytest.fixture
def subscription(client, event_type):
    """Creates subscriptions of a new event type with numbered events, one partition after the other."""

    def create(count=0, partitions=1, **members):
        name = event_type(partitions=partitions, partition_strategy="user_defined")
        publish(client, name, range(count), partitions)
        wanted = Subscription(owning_application="shop", event_types=[name], read_from="begin", **members)
        return client.subscriptions.create(wanted)

    return create


def publish(client, name, numbers, partitions=1):
    if numbers:
        common = {"occurred_at": "2026-01-01T00:00:00Z"}
        metadata = [{**common, "eid": EID.format(n), "partition": str(n % partitions)} for n in numbers]
        client.publish(name, [{"number": n, "metadata": each} for n, each in zip(numbers, metadata, strict=True)])


def left(client, subscription):
    """How many events are not committed."""
    (stats,) = client.subscriptions.stats(subscription.id)
    return sum(each.unconsumed_events for each in stats.partitions)


def read(consumer, count):
    return [event.data["number"] for event in itertools.islice(consumer, count)]


# --- loops ---


def test_events_are_decoded_and_know_where_they_are_from(client, subscription):
    created = subscription(2)
    with client.subscription(created.id, type=Numbered, batch_limit=2) as consumer:
        event = next(iter(consumer))
        assert consumer.subscription_id == created.id
    assert event.data == Numbered(0)
    assert event.data is event.data
    assert msgspec.json.decode(event.raw)["number"] == 0
    assert (event.event_type, event.partition) == (created.event_types[0], "0")
    assert (event.metadata.eid, event.metadata.version) == (EID.format(0), "1.0.0")


def test_a_subscription_that_does_not_exist_is_created(client, event_type):
    name = event_type()
    publish(client, name, range(2))
    wanted = Subscription(owning_application="shop", event_types=[name], read_from="begin")
    with client.subscription(wanted, batch_limit=1) as consumer:
        assert read(consumer, 2) == [0, 1]
    assert [each.id for each in client.subscriptions.list(event_types=[name])] == [consumer.subscription_id]


def test_leaving_the_block_commits_what_was_handled_also_inside_a_batch(client, subscription):
    created = subscription(10)
    with client.subscription(created.id, batch_limit=10) as consumer:
        assert read(consumer, 4) == [0, 1, 2, 3]
    assert left(client, created) == 6
    with client.subscription(created.id, batch_limit=6) as consumer:
        assert read(consumer, 6) == [4, 5, 6, 7, 8, 9]
    assert left(client, created) == 0


def test_an_error_leaves_the_event_in_hand(client, subscription):
    created = subscription(5)

    def fail():
        with client.subscription(created.id, batch_limit=5) as consumer:
            for event in consumer:
                if event.data["number"] == 2:
                    raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert left(client, created) == 3


def test_a_loop_may_be_continued_within_the_block(client, subscription):
    created = subscription(5)
    with client.subscription(created.id, batch_limit=5) as consumer:
        assert read(consumer, 2) == [0, 1]
        assert read(consumer, 2) == [2, 3]
    assert left(client, created) == 1


def test_a_consumer_serves_once(client, subscription):
    with client.subscription(subscription(1).id, batch_limit=1) as consumer:
        read(consumer, 1)
    with pytest.raises(RuntimeError, match="make another one"):
        read(consumer, 1)


def test_batches_are_committed_as_a_whole(client, subscription):
    created = subscription(6)
    with client.subscription(created.id, batch_limit=3) as consumer:
        batch = next(iter(consumer.batches()))
        assert [event.data["number"] for event in batch] == [0, 1, 2]
    assert left(client, created) == 3


def test_manual_commits_are_those_of_the_application(client, subscription):
    created = subscription(6)
    with client.subscription(created.id, batch_limit=3, commit="manual") as consumer:
        for event in itertools.islice(consumer, 5):
            if event.data["number"] == 3:
                event.commit()
                assert consumer.flush()
    assert left(client, created) == 2


def test_commits_by_interval_are_made_at_the_end_at_the_latest(client, subscription):
    created = subscription(4)
    with client.subscription(created.id, batch_limit=1, commit="interval", commit_interval_s=3_600) as consumer:
        read(consumer, 3)
        assert left(client, created) > 1
    assert left(client, created) == 1


def test_partitions_can_be_chosen(client, subscription):
    created = subscription(6, partitions=2)
    chosen = [StreamPartition(created.event_types[0], "1")]
    with client.subscription(created.id, batch_limit=3, partitions=chosen) as consumer:
        assert read(consumer, 3) == [1, 3, 5]


def test_a_stream_that_ends_is_followed_by_the_next(client, subscription):
    created = subscription(2)
    with client.subscription(created.id, batch_limit=1, max_uncommitted_events=1) as consumer:
        numbers = iter(consumer)
        assert next(numbers).data["number"] == 0
        (stats,) = client.subscriptions.stats(created.id)
        client.subscriptions.close_stream(created.id, stats.partitions[0].stream_id)
        # Uncommitted events are delivered again.
        assert {next(numbers).data["number"] for _ in range(2)} == {0, 1}
    assert left(client, created) == 0


def test_a_slow_loop_keeps_its_partition(client, subscription, loop):
    created = subscription(2)
    with client.subscription(created.id, batch_limit=2, commit_timeout=1) as consumer:
        first = iter(consumer)
        assert next(first).data["number"] == 0
        # Longer than the broker waits for a commit.
        if isinstance(client, Client):
            time.sleep(1.8)
        else:
            loop.run_until_complete(asyncio.sleep(1.8))
        assert next(first).data["number"] == 1
    assert left(client, created) == 0


# --- errors ---


def test_a_subscription_that_is_not_there_is_an_error(client):
    with (
        client.subscription("7e2e9b3a-0000-4000-8000-000000000000") as consumer,
        pytest.raises(NotFound, match="does not exist"),
    ):
        read(consumer, 1)


def test_a_reset_is_followed(client, subscription):
    created = subscription(3)
    with client.subscription(created.id, batch_limit=3) as consumer:
        assert read(consumer, 3) == [0, 1, 2]
        assert consumer.flush()
    reset = CursorSpecification(event_type=created.event_types[0], partition="0", offset="BEGIN")
    client.subscriptions.reset(created.id, [reset])
    with client.subscription(created.id, batch_limit=3) as consumer:
        assert read(consumer, 3) == [0, 1, 2]


# --- handlers ---


def test_handlers_keep_the_order_of_each_partition(client, subscription):
    created = subscription(60, partitions=3)
    seen = []
    lock = threading.Lock()
    consumer = client.subscription(created.id, batch_limit=5)

    def handle(event):
        with lock:
            seen.append((event.partition, event.data["number"]))
            if len(seen) == 60:
                consumer.stop()

    consumer.run(handle, concurrency=3)
    for partition in "012":
        numbers = [number for each, number in seen if each == partition]
        assert numbers == sorted(numbers)
    assert left(client, created) == 0


def test_the_application_is_told_of_its_partitions(client, subscription):
    created = subscription(2, partitions=2)
    told = []
    consumer = client.subscription(
        created.id,
        batch_limit=1,
        on_assigned=lambda partition: told.append(("+", partition.partition)),
        on_revoked=lambda partition, reason: told.append(("-", partition.partition, reason)),
    )
    handled = []

    def handle(event):
        handled.append(event.partition)
        if len(handled) == 2:
            consumer.stop()

    consumer.run(handle, concurrency=1)
    assert sorted(told[:2]) == [("+", "0"), ("+", "1")]
    assert sorted(told[2:]) == [("-", "0", "the consumer stops"), ("-", "1", "the consumer stops")]


def failing(consumer, seen, last):
    """A handler that can't handle event 1, and stops after another one."""

    def handle(event):
        seen.append(event.data["number"])
        if event.data["number"] == 1:
            raise LookupError("event 1")
        if event.data["number"] == last:
            consumer.stop()

    return handle


def test_an_event_that_can_not_be_handled_stops_by_default(client, subscription):
    created = subscription(3)
    consumer, seen = client.subscription(created.id, batch_limit=3), []
    with pytest.raises(LookupError, match="event 1"):
        consumer.run(failing(consumer, seen, 2), attempts=2)
    assert seen == [0, 1, 1]
    assert left(client, created) == 2


@pytest.mark.parametrize("on_error", ["skip", lambda *_: "skip"], ids=["named", "function"])
def test_an_event_that_can_not_be_handled_may_be_skipped(client, subscription, on_error):
    created = subscription(3)
    consumer, seen = client.subscription(created.id, batch_limit=3), []
    consumer.run(failing(consumer, seen, 2), attempts=1, on_error=on_error)
    assert seen == [0, 1, 2]
    assert left(client, created) == 0


def test_an_event_that_can_not_be_handled_becomes_a_dead_letter(client, subscription, caplog):
    wanted = Subscription(owning_application="", event_types=[]).with_dead_letters(sends=2)
    created = subscription(3, annotations=wanted.annotations)
    consumer, seen = client.subscription(created.id, batch_limit=3), []
    consumer.run(failing(consumer, seen, 2), attempts=1, on_error="dead_letter")
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert said, "the failures of the handler"
    assert not [each for each in said if "left to the broker" not in each], "the streams end as they are meant to"
    assert [number for number in seen if number != 1] == [0, 2]
    assert left(client, created) == 0
    (letter,) = client.subscriptions.dead_letters(created.id)
    assert letter.data(Numbered) == Numbered(1)


def test_each_dead_letter_has_the_reason_of_its_own_event(client, subscription):
    wanted = Subscription(owning_application="", event_types=[]).with_dead_letters(sends=2)
    created = subscription(5, annotations=wanted.annotations)
    consumer = client.subscription(created.id, batch_limit=5)

    def handle(event):
        if event.data["number"] in {1, 3}:
            raise ValueError(f"no customer {event.data['number']}")
        if event.data["number"] == 4:
            consumer.stop()

    consumer.run(handle, attempts=1, on_error="dead_letter")
    letters = client.subscriptions.dead_letters(created.id)
    assert {each.event["number"]: each.error.reason for each in letters} == {
        1: "ValueError: no customer 1",
        3: "ValueError: no customer 3",
    }


def test_a_broker_that_takes_no_reasons_gets_none(client, subscription, monkeypatch):
    wanted = Subscription(owning_application="", event_types=[]).with_dead_letters(sends=2)
    created = subscription(3, annotations=wanted.annotations)
    consumer, seen, told = client.subscription(created.id, batch_limit=3), [], []

    def refuse(*_):
        told.append(True)
        raise NotFound(404, {}, request="POST", retry_after_s=None)

    for kind in (_async.subscriptions.Subscriptions, _sync.subscriptions.Subscriptions):
        monkeypatch.setattr(kind, "record_failures", refuse)
    consumer.run(failing(consumer, seen, 2), attempts=1, on_error="dead_letter")
    (letter,) = client.subscriptions.dead_letters(created.id)
    assert (told[:1], letter.error.reason) == ([True], "")


def test_commits_that_are_refused_again_and_again_end_the_consumer(client, subscription, monkeypatch):
    created = subscription(2)

    def refuse(*_):
        raise Unprocessable(422, {"detail": "no such cursor"}, request="POST", retry_after_s=None)

    for kind in (_async.subscriptions.Subscriptions, _sync.subscriptions.Subscriptions):
        monkeypatch.setattr(kind, "commit", refuse)
    for module in ("_async", "_sync"):
        monkeypatch.setattr(f"rioni.client.{module}.stream_reader.REFUSALS_MAX", 1)
    with (
        client.subscription(created.id, batch_limit=2, commit_timeout=1) as consumer,
        pytest.raises(Unprocessable, match="no such cursor"),
    ):
        read(consumer, 1_000)


def test_without_a_policy_of_the_subscription_there_are_no_dead_letters(client, subscription):
    with pytest.raises(ValueError, match="has no dead-letter policy"):
        client.subscription(subscription().id).run(print, on_error="dead_letter")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"concurrency": 0}, "concurrency must be between 1"),
        ({"attempts": 0}, "attempts at least 1"),
        ({"on_error": "retry"}, "'retry' is not what can be done"),
    ],
    ids=str,
)
def test_options_of_handlers_that_make_no_sense_are_refused(client, options, text):
    with pytest.raises(ValueError, match=text):
        client.subscription("id").run(print, **options)
