"""Producers whose broker refuses, fails, is slow or is not there."""

import asyncio
import contextlib
import logging
import socket
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import msgspec
import pytest

from rioni.client import (
    AsyncClient,
    ConnectionFailed,
    EventFailed,
    EventsNotStored,
    Forbidden,
    ProducerClosed,
    TimedOut,
    TooLarge,
    Unavailable,
    Unprocessable,
)
from tests.support.scripted_server import DROP, Answer, scripted_server


TIMEOUT_S = 60.0
OK = Answer(200)
EVENT_TYPE = Answer(
    200,
    {"name": "a", "owning_application": "b", "category": "business", "schema": {"type": "json_schema", "schema": "{}"}},
)
AT_ONCE = {"Retry-After": "0"}
BUSY = Answer(503, {"title": "Service Unavailable"}, AT_ONCE)
STORED = {"publishing_status": "submitted", "step": "publishing"}
LOST = {"publishing_status": "failed", "step": "publishing", "detail": "timed out"}
REFUSED = {"publishing_status": "failed", "step": "validating", "detail": "no"}
ABORTED = {"publishing_status": "aborted", "step": "validating"}


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.001)
    # Each test has its own: a request that the test before did not wait for may still come.
    with scripted_server() as server:
        yield server


@pytest.fixture
def produce(make_client, server):
    """A function that sends a number of events in a batch, and returns their errors."""

    def produce(count, *answers, **options):
        server.script(EVENT_TYPE, *answers)
        with (
            make_client(server.url) as client,
            client.producer("a", **{"linger_s": 60, "timeout_s": 30} | options) as producer,
        ):
            deliveries = [producer.send({"n": n}) for n in range(count)]
            with contextlib.suppress(EventsNotStored):
                producer.flush()
            return [delivery.error for delivery in deliveries]

    return produce


def _sent(server):
    """The numbers of the events of each batch that came."""
    batches = [msgspec.json.decode(request.body) for request in server.requests if request.method == "POST"]
    return [[event["n"] for event in batch] for batch in batches]


def _keys(server):
    return [*server.keys][1:]


def test_a_batch_is_sent_again_under_its_key(produce, server):
    assert produce(2, DROP, BUSY, Answer(429, {}, AT_ONCE), DROP, DROP, DROP, OK) == [None, None]
    assert len(set(_keys(server))) == 1
    assert _sent(server) == [[0, 1]] * 7
    assert len({request.body for request in server.requests[1:]}) == 1


def test_a_long_outage_is_logged_at_its_begin_and_at_its_end(produce, monkeypatch, caplog):
    monkeypatch.setattr("rioni.client.retries.SILENT_S", 0.0)
    with caplog.at_level(logging.WARNING, "rioni.client"):
        assert produce(1, BUSY, BUSY, BUSY, OK) == [None]
        assert produce(1, OK) == [None]
    begin, end = caplog.messages
    assert begin.startswith("Failing since 0 s")
    assert end.startswith("Works again after ")


def test_each_batch_has_a_key_of_its_own(produce, server):
    assert produce(4, OK, batch_events=2) == [None] * 4
    assert len(set(_keys(server))) == 2


def test_without_keys_none_is_sent(produce, server):
    assert produce(1, DROP, OK, idempotent=False) == [None]
    assert _keys(server) == [None, None]


def test_after_a_partial_failure_the_batch_is_sent_again_under_its_key(produce, server):
    assert produce(2, Answer(207, [STORED, LOST]), Answer(207, [STORED, LOST]), OK) == [None, None]
    assert (_sent(server), len(set(_keys(server)))) == ([[0, 1]] * 3, 1)


def test_without_keys_only_what_failed_is_sent_again(produce, server):
    answers = Answer(207, [STORED, LOST, LOST]), Answer(207, [LOST, STORED]), OK
    assert produce(3, *answers, idempotent=False) == [None] * 3
    assert _sent(server) == [[0, 1, 2], [1, 2], [1]]


def test_what_fails_until_the_deadline_has_the_reason_of_the_broker(produce, monkeypatch):
    for kind in ("_async", "_sync"):
        monkeypatch.setattr(f"rioni.client.{kind}.publishing.backoff_s", lambda n: 0.001 if n < 3 else TIMEOUT_S)
    stored, failed = produce(2, Answer(207, [STORED, LOST]), timeout_s=TIMEOUT_S)
    assert stored is None
    assert isinstance(failed, EventFailed)
    assert (failed.step, failed.detail, failed.event[:6]) == ("publishing", "timed out", b'{"n":1')


def test_what_was_stored_before_later_failures_is_known(produce):
    stored, failed = produce(2, Answer(207, [STORED, LOST]), Answer(403, {"title": "Forbidden"}))
    assert stored is None
    assert isinstance(failed, Forbidden)


def test_events_that_were_aborted_because_of_another_are_sent_again_under_a_new_key(produce, server):
    answers = Answer(422, [ABORTED, REFUSED, ABORTED, ABORTED]), Answer(422, [ABORTED, ABORTED, REFUSED]), OK
    errors = produce(4, *answers)
    assert [type(error) for error in errors] == [type(None), EventFailed, type(None), EventFailed]
    assert (_sent(server), len(set(_keys(server)))) == ([[0, 1, 2, 3], [0, 2, 3], [0, 2]], 3)


def test_a_batch_of_refused_events_ends(produce, server):
    assert {type(error) for error in produce(2, Answer(422, [REFUSED, ABORTED]), Answer(422, [REFUSED]))} == {
        EventFailed
    }
    assert len(_sent(server)) == 2


def test_a_batch_that_is_aborted_as_a_whole_is_not_sent_again(produce, server):
    assert {type(error) for error in produce(2, Answer(422, [ABORTED, ABORTED]))} == {EventFailed}
    assert len(_sent(server)) == 1


def test_a_problem_with_the_request_fails_all_events(produce, server):
    assert {type(error) for error in produce(3, Answer(422, {"detail": "X-CONSUMER-TAG: is empty!"}))} == {
        Unprocessable
    }
    assert len(_sent(server)) == 1


def test_a_batch_that_is_too_large_for_the_broker_is_halved(produce, server):
    assert produce(4, Answer(413, {}), OK) == [None] * 4
    assert _sent(server) == [[0, 1, 2, 3], [0, 1], [2, 3]]


def test_an_event_that_is_too_large_alone_fails(produce, server):
    errors = produce(2, Answer(413, {}), Answer(413, {}), OK)
    assert [type(error) for error in errors] == [TooLarge, type(None)]
    assert _sent(server) == [[0, 1], [0], [1]]


def test_an_event_that_the_broker_cannot_read_is_found(produce, server):
    unreadable = Answer(400, {"detail": "Error occurred when parsing event(s). Duplicate key"})
    errors = produce(3, unreadable, unreadable, OK)
    assert [error is None for error in errors] == [False, True, True]
    assert _sent(server) == [[0, 1, 2], [0], [1, 2]]


def test_results_that_do_not_fit_the_batch_fail_it(produce):
    assert None not in produce(3, Answer(422, [REFUSED]))


def test_a_broker_that_stays_away_fails_events_at_their_deadline(produce):
    (error,) = produce(1, DROP, timeout_s=0.1)
    assert isinstance(error, ConnectionFailed)


def test_events_are_not_taken_over_as_long_as_their_category_is_unknown(make_client, server):
    server.script(BUSY)
    with make_client(server.url) as client, client.producer("a") as producer:
        # On a slow machine the deadline comes while the last attempt waits for its answer.
        with pytest.raises((Unavailable, TimedOut)):
            producer.send({"n": 0}, timeout_s=0.2)
        # By path: the request that timed out may still come, and must not take an answer of the next.
        server.script_paths({"/event-types/a": [EVENT_TYPE], "/event-types/a/events": [OK]})
        producer.send({"n": 1}).result()
    assert _sent(server) == [[1]]


def test_requests_have_the_headers_of_the_producer_and_the_trace_of_their_first_event(produce, server, monkeypatch):
    traces = iter("abcdefgh")

    def inject(carrier):
        if sys._getframe(2).f_code.co_name == "_open":
            carrier["traceparent"] = next(traces)

    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", SimpleNamespace(inject=inject))
    produce(3, OK, batch_events=2, headers={"X-Flow-Id": "flow"})
    requests = server.requests[1:]
    assert [(request.headers["X-Flow-Id"], request.headers["traceparent"]) for request in requests] == [
        ("flow", "a"),
        ("flow", "b"),
    ]


@pytest.fixture
def silent_producer(make_client):
    """Makes producers whose broker takes batches and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent, make_client(_url(silent)) as client:
        getattr(client, "_target", client)._publishing._categories["a"] = "business"
        yield partial(client.producer, "a")


def _url(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("limits", [{"buffer_events": 3}, {"buffer_bytes": 350}])
def test_a_full_buffer_lets_senders_wait_until_their_deadline(silent_producer, limits):
    producer = silent_producer(batch_events=2, linger_s=0, timeout_s=60, **limits)
    deliveries = [producer.send({"n": n}, timeout_s=0.01) for n in range(3)]
    with pytest.raises(TimedOut, match="The buffer is full"):
        producer.send({"n": 3}, timeout_s=0.01)
    with pytest.raises(TimedOut):
        deliveries[0].result(timeout_s=0.01)
    with pytest.raises(TimedOut, match="have no result after"):
        producer.flush(timeout_s=0.01)
    assert not deliveries[0].done
    with pytest.raises(EventsNotStored, match="3 events"):
        producer.close(timeout_s=0.01)
    assert {type(delivery.error) for delivery in deliveries} == {TimedOut}


def test_an_event_that_is_larger_than_the_buffer_is_sent_alone(produce, server):
    assert produce(2, OK, buffer_bytes=1, linger_s=0) == [None, None]
    assert _sent(server) == [[0], [1]]


def test_closing_does_not_wait_for_a_pause_between_attempts(make_client, server):
    server.script(EVENT_TYPE, Answer(503, {}, {"Retry-After": "60"}))
    with make_client(server.url) as client:
        producer = client.producer("a", linger_s=0)
        delivery = producer.send({"n": 0})
        with pytest.raises(EventsNotStored):
            producer.close(timeout_s=0.05)
        assert isinstance(delivery.error, TimedOut)


def test_a_task_whose_event_loop_ends_leaves_no_event_without_a_result(server, caplog):
    server.script(EVENT_TYPE, BUSY)
    deliveries = []

    async def main():
        client = AsyncClient(server.url)
        deliveries.append(await client.producer("a").send({"n": 0}))
        await client._transport.close()

    asyncio.run(main())
    assert isinstance(deliveries[0].error, ProducerClosed)
    assert "1 of 1 events were not stored" in caplog.text


SCRIPT = """
import os, sys
from rioni.client import Client, ProducerClosed
from rioni.client._sync import concurrency
concurrency.EXIT_S = float(sys.argv[2])
producer = Client(sys.argv[1]).producer("a", linger_s=60)
producer.send({"n": 0})
if os.fork() == 0:
    try:
        producer.send({"n": 1})
    except ProducerClosed as ex:
        print(ex, flush=True)
    sys.exit()
assert os.wait()[1] == 0
"""


@pytest.mark.parametrize("gone", [False, True])
def test_what_is_not_closed_is_sent_at_exit_by_the_process_that_made_it(server, gone):
    """The exit comes in time, too, if the broker is gone."""
    server.script(EVENT_TYPE, Answer(503, {}, {"Retry-After": "60"}) if gone else OK)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT, server.url, "0.3" if gone else "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "belongs to the process that forked this one" in done.stdout
    assert _sent(server) == [[0]]
    assert ("1 of 1 events were not stored" in done.stderr) == gone
