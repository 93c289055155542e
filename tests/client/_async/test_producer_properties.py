"""Whatever fails: events of producers are stored once and in order, or their deliveries have failed."""

import asyncio
import contextlib
from collections import Counter

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.client import AsyncClient, Client, EventFailed, EventsNotStored
from tests.support.blocking_client import Blocking


EVENT_TYPE = {
    "name": "a",
    "owning_application": "b",
    "category": "business",
    "schema": {"type": "json_schema", "schema": "{}"},
}
AT_ONCE = {"Retry-After": "0"}

FAULTS = st.sampled_from(["ok", "lost", "answer lost", "busy", "limited", "part", "part unknown", "timed out"])
EVENTS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from([False, False, False, True])), min_size=1, max_size=12)


class ModelBroker:
    """Stores batches under their keys, events of one key in one partition; its faults are given."""

    def __init__(self, faults, last, events_max):
        self.faults, self.last, self.events_max = iter(faults), last, events_max
        self.partitions = {}
        self.batches = {}

    def __call__(self, request):
        if request.method == "GET":
            return httpx.Response(200, json=EVENT_TYPE)
        fault, key, events = next(self.faults, self.last), request.headers["Idempotency-Key"], _events(request)
        if fault == "lost":
            raise httpx.ReadError("connection lost")
        if fault in {"busy", "limited"}:
            return httpx.Response({"busy": 503, "limited": 429}[fault], headers=AT_ONCE)
        if len(events) > self.events_max:
            return httpx.Response(413)
        if any(event["bad"] for event in events):
            return httpx.Response(422, json=_refused(events))
        body, done = self.batches.setdefault(key, (request.content, set()))
        assert body == request.content
        found = sorted({event["k"] for event in events})
        part = {"part": found[: len(found) // 2], "timed out": []}.get(fault, found)
        for event in events:
            if event["k"] in part and event["k"] not in done:
                self.partitions.setdefault(event["k"], []).append(event["n"])
        done.update(part)
        if fault == "answer lost":
            raise httpx.ReadError("connection lost")
        known = found[:1] if fault == "part unknown" else sorted(done)
        if known == found:
            return httpx.Response(200)
        outcomes = {True: {"publishing_status": "submitted"}, False: {"publishing_status": "failed"}}
        return httpx.Response(207, json=[outcomes[event["k"] in known] | {"step": "publishing"} for event in events])


def _events(request):
    return msgspec.json.decode(request.content)


def _refused(events):
    bad = next(n for n, event in enumerate(events) if event["bad"])
    return [
        {"publishing_status": "failed" if n == bad else "aborted", "step": "validating" if n <= bad else "none"}
        for n in range(len(events))
    ]


@pytest.fixture(scope="module", params=["sync", "async"])
def connect(request):
    """Makes clients of a model of a broker."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr("rioni.client.retries.WAIT_FIRST_S", 0.0001)
        patch.setattr("rioni.client.retries.WAIT_MAX_S", 0.0002)

        def connect(broker):
            kind = Client if request.param == "sync" else AsyncClient
            client = kind("http://localhost")
            client._transport._http = httpx.MockTransport(broker)
            return client if request.param == "sync" else Blocking(client, runner.get_loop())

        yield connect


@given(
    events=EVENTS,
    faults=st.lists(FAULTS, max_size=12),
    last=st.sampled_from(["ok", "ok", "busy", "timed out"]),
    in_flight=st.integers(1, 3),
    batch_events=st.integers(1, 5),
    events_max=st.integers(1, 5),
    pauses=st.sets(st.integers(0, 11)),
)
def test_each_event_is_stored_once_and_in_order_or_has_failed(
    connect, events, faults, last, in_flight, batch_events, events_max, pauses
):
    broker = ModelBroker(faults, last, events_max)
    options = {"in_flight": in_flight, "key": lambda event: event["k"], "batch_events": batch_events, "linger_s": 60}
    with connect(broker) as client:
        producer = client.producer("a", timeout_s=30 if last == "ok" else 0.02, **options)
        deliveries = []
        for n, (k, bad) in enumerate(events):
            deliveries.append(producer.send({"n": n, "k": k, "bad": bad}, timeout_s=60))
            if n in pauses:
                with contextlib.suppress(EventsNotStored):
                    producer.flush()
        with contextlib.suppress(EventsNotStored):
            producer.close()
    stored = Counter(n for numbers in broker.partitions.values() for n in numbers)
    assert set(stored.values()) <= {1}
    assert all(numbers == sorted(numbers) for numbers in broker.partitions.values())
    for n, (delivery, (_, bad)) in enumerate(zip(deliveries, events, strict=True)):
        assert delivery.done
        if delivery.error is None:
            assert stored[n] == 1
        if bad:
            assert delivery.error is not None
        if isinstance(delivery.error, EventFailed) and delivery.error.step == "validating":
            assert bad
        if last == "ok" and not bad:
            assert delivery.error is None
