"""Producers of a real broker: order, results, and events that fail."""

import itertools
import threading
from dataclasses import dataclass

import msgspec
import pytest

from rioni.client import Client, Cursor, EventFailed, EventsNotStored, NotFound, ProducerClosed


BEGIN = "BEGIN"


def test_events_are_stored_in_order_with_a_result_for_each(client, event_type):
    name = event_type()
    with client.producer(name, batch_events=7) as producer:
        deliveries = [producer.send({"number": n}) for n in range(50)]
        assert [delivery.result() for delivery in deliveries] == [None] * 50
        assert {(delivery.done, delivery.error) for delivery in deliveries} == {(True, None)}
        assert msgspec.json.decode(deliveries[3].event)["number"] == 3
    assert _numbers(client, name) == [*range(50)]


def test_events_may_be_of_any_form(client, event_type):
    @dataclass
    class Number:
        number: int

    name = event_type()
    with client.producer(name) as producer:
        for event in ({"number": 1}, b' {"number": 2} ', '{"number": 3}', Number(4), msgspec.Raw(b'{"number": 5}')):
            producer.send(event)
        with pytest.raises(TypeError, match="An event is a JSON object"):
            producer.send([6])
    assert _numbers(client, name) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_batches_may_be_compressed(client, event_type, compression):
    name = event_type()
    with client.producer(name, compression=compression) as producer:
        for number in range(100):
            producer.send({"number": number})
    assert len(_numbers(client, name)) == 100


def test_events_of_category_undefined_get_no_metadata(client, event_type):
    name = event_type(category="undefined", enrichment_strategies=[])
    with client.producer(name) as producer:
        producer.send({"number": 1})
    assert _events(client, name) == [{"number": 1}]


def test_refused_events_fail_and_the_others_are_stored_in_order(client, event_type):
    name = event_type()
    with client.producer(name, linger_s=60) as producer:
        deliveries = [producer.send({"number": n if n % 3 else str(n)}) for n in range(10)]
        with pytest.raises(EventsNotStored, match=r"4 events were not stored in .*: validating: ") as caught:
            producer.flush()
        assert [msgspec.json.decode(event)["number"] for event, _ in caught.value.failures] == ["0", "3", "6", "9"]
        for n, delivery in enumerate(deliveries):
            assert (delivery.error is None) == bool(n % 3)
        with pytest.raises(EventFailed) as failed:
            deliveries[0].result()
        assert (failed.value.step, failed.value.event) == ("validating", deliveries[0].event)
        producer.flush()
    assert _numbers(client, name) == [1, 2, 4, 5, 7, 8]


def test_errors_that_were_looked_at_are_not_raised_again(client, event_type):
    with client.producer(event_type()) as producer:
        delivery = producer.send({"number": "one"})
        with pytest.raises(EventFailed):
            delivery.result()


def test_errors_that_nobody_looks_at_are_raised_at_the_end(make_client, event_type, caplog):
    name = event_type()
    with pytest.raises(EventsNotStored, match="1 events"), make_client() as other:
        # The client closes its producers.
        other.producer(name).send({"number": "one"})
    assert "1 of 1 events were not stored" in caplog.text


def test_an_error_of_the_application_is_not_hidden_by_events_that_fail(client, event_type, caplog):
    with pytest.raises(ZeroDivisionError), client.producer(event_type()) as producer:
        1 / (producer.send({"number": "one"}).done or 0)
    assert "1 events were not stored" in caplog.text


def test_the_function_for_results_gets_each(client, event_type, caplog):
    results = []

    def note(delivery):
        results.append((delivery.done, type(delivery.error)))
        raise ValueError("of the application")

    with client.producer(event_type(), on_result=note) as producer:
        for number in (1, "two", 3):
            producer.send({"number": number})
    assert results == [(True, type(None)), (True, EventFailed), (True, type(None))]
    assert "on_result failed" in caplog.text


def test_an_event_type_that_does_not_exist_fails_its_events(client):
    with client.producer("client.no-such-type") as producer, pytest.raises(NotFound):
        producer.send({"number": 1}).result()


def test_order_is_kept_by_key_with_several_batches_in_flight(client, event_type):
    name = event_type()
    with client.producer(name, in_flight=4, batch_events=3, key=lambda event: event["number"] % 7) as producer:
        for number in range(200):
            producer.send({"number": number})
    numbers = _numbers(client, name)
    assert sorted(numbers) == [*range(200)]
    for rest in range(7):
        ordered = [number for number in numbers if number % 7 == rest]
        assert ordered == sorted(ordered)


def test_without_a_key_batches_in_flight_keep_order_within_each(client, event_type):
    name = event_type()
    with client.producer(name, in_flight=4, batch_events=10, linger_s=60) as producer:
        for number in range(200):
            producer.send({"number": number})
    numbers = _numbers(client, name)
    assert sorted(numbers[n : n + 10] for n in range(0, 200, 10)) == [[*range(n, n + 10)] for n in range(0, 200, 10)]


def test_threads_share_a_producer(client, event_type, broker):
    name = event_type()
    with (
        Client(broker.url) as threads_client,
        threads_client.producer(name, buffer_events=20, batch_events=5) as producer,
    ):
        numbers = itertools.count()
        threads = [
            threading.Thread(target=lambda: [producer.send({"number": next(numbers)}) for _ in range(40)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(_numbers(client, name)) == [*range(160)]


def test_a_closed_producer_takes_no_events(client, event_type):
    producer = client.producer(event_type())
    producer.send({"number": 1})
    producer.close()
    producer.close()
    with pytest.raises(ProducerClosed):
        producer.send({"number": 2})


@pytest.mark.parametrize("options", [{"batch_events": 0}, {"linger_s": -1}, {"in_flight": 0}, {"compression": "zip"}])
def test_limits_that_make_no_sense_are_refused(client, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} is|is not a compression"):
        client.producer("client.any", **options)


def _numbers(client, name):
    return [event["number"] for event in _events(client, name)]


def _events(client, name):
    stored = client.partitions.get(name, "0", consumed_offset=BEGIN).unconsumed_events
    cursors = [Cursor(partition="0", offset=BEGIN)]
    batches = client.events(name, cursors=cursors, stream_limit=stored, batch_limit=stored)
    return [msgspec.json.decode(event) for batch in batches for event in batch.events]
