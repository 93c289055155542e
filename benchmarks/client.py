"""The client of Python beside `rioni bench`, in turns: `python -m benchmarks.client publish`, or `consume`.

`rioni bench` writes ready-made bytes to sockets in one loop: it is what a client in Python can reach at best. The
client takes events one by one as dictionaries, adds metadata, encodes them, and returns a delivery for each. Both send
idempotency keys, or neither does. Consumers hand out events one by one, and commit on the way; `rioni bench` decodes no
event, and counts by cursors. Each figure is of a separate process; client, server and disk share the machine.
Ratios are taken within a round.
"""

import argparse
import asyncio
import itertools
import os
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

from benchmarks.over_http import BATCH, SIZE, bench, server
from rioni.client import AsyncClient, Client, Subscription
from rioni.client.encoding import encode_event


CONNECTIONS = (1, 8, 32)
EVENT_TYPE = "rioni-bench.business"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("publish", "consume"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each figure")
    parser.add_argument("--connections", type=int, nargs="+", default=CONNECTIONS)
    parser.add_argument("--events", type=int, default=1_000_000, help="to consume for each figure")
    parser.add_argument("--window", type=int, default=50_000, help="events that are sent ahead of what is committed")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    with server(options.workers) as (url, _):
        if options.what == "publish":
            publish(url, options.connections, options.rounds, options.seconds)
        else:
            consume(url, options.rounds, options.events, options.window)


def publish(url: str, connections: list[int], rounds: int, seconds: float) -> None:
    """Compare the producers with `rioni bench publish`, with idempotency keys and without."""
    print(
        f"events/s published, {SIZE} bytes each, batches of {BATCH}; medians of {rounds} rounds, ratio to rioni bench"
    )
    for count, keys in itertools.product(connections, (True, False)):
        rates: dict[str, list[float]] = {"rioni bench": [], "Producer": [], "AsyncProducer": []}
        for _ in range(rounds):
            rates["rioni bench"].append(_bench(url, count, seconds, keys=keys))
            rates["Producer"].append(_alone(published, url, count, seconds, keys))
            rates["AsyncProducer"].append(_alone(published_async, url, count, seconds, keys))
        for name, found in rates.items():
            ratios = [rate / base for rate, base in zip(found, rates["rioni bench"], strict=True)]
            label = f"{count:>3} in flight, {'with keys' if keys else 'no keys'}"
            print(f"{label:<26}{name:<16}{statistics.median(found):>10,.0f}{statistics.median(ratios):>8.0%}")


def consume(url: str, rounds: int, events: int, window: int) -> None:
    """Compare the consumers with `rioni bench consume`, in loops that count events, and that decode each."""
    stored = ["--event-type", EVENT_TYPE, "--category", "business", "--batch", "500", "--size", str(SIZE)]
    bench(url, "publish", *stored, "--seconds", "600", "--requests", str(events // 500 + 20))
    print(f"events/s consumed, {SIZE} bytes each when published; medians of {rounds} rounds, ratio to rioni bench")
    consumers = {"Consumer": consumed, "AsyncConsumer": consumed_async}
    measures = {
        f"{name}, {result}": (measure, result)
        for (name, measure), result in itertools.product(consumers.items(), ("counted", "dict", "struct"))
    }
    rates: dict[str, list[float]] = {"rioni bench": [], **{name: [] for name in measures}}
    for _ in range(rounds):
        options = ["--event-type", EVENT_TYPE, "--events", str(events), "--seconds", "120", "--window", str(window)]
        rates["rioni bench"].append(bench(url, "consume", *options)["events_per_s"])
        for name, (measure, result) in measures.items():
            rates[name].append(_alone(measure, url, events, result, window))
    for name, found in rates.items():
        ratios = [rate / base for rate, base in zip(found, rates["rioni bench"], strict=True)]
        print(f"{name:<26}{statistics.median(found):>10,.0f}{statistics.median(ratios):>8.0%}")


def _subscription() -> Subscription:
    group = uuid.uuid4().hex
    return Subscription(owning_application="bench", consumer_group=group, event_types=[EVENT_TYPE], read_from="begin")


class Numbered(msgspec.Struct):
    """The event as an application has published it."""

    number: int
    text: str


def consumed(url: str, events: int, result: str, window: int) -> float:
    """Events/s by the consumer for threads; the result is `counted`, `dict` or `struct`."""
    decodes = result != "counted"
    options = {"type": Numbered if result == "struct" else None, "max_uncommitted_events": window}
    with Client(url) as client, client.subscription(_subscription(), **options) as consumer:
        begin = time.perf_counter()
        for count, event in enumerate(consumer, 1):
            if decodes:
                _ = event.data
            if count == events:
                break
        return events / (time.perf_counter() - begin)


def consumed_async(url: str, events: int, result: str, window: int) -> float:
    """Events/s by the consumer for asyncio; as `consumed`."""
    decodes = result != "counted"
    options = {"type": Numbered if result == "struct" else None, "max_uncommitted_events": window}

    async def run() -> float:
        async with AsyncClient(url) as client, client.subscription(_subscription(), **options) as consumer:
            begin, count = time.perf_counter(), 0
            async for event in consumer:
                count += 1
                if decodes:
                    _ = event.data
                if count == events:
                    break
            return events / (time.perf_counter() - begin)

    return asyncio.run(run())


def _bench(url: str, connections: int, seconds: float, *, keys: bool) -> float:
    options = ["--connections", str(connections), "--batch", str(BATCH), "--size", str(SIZE)]
    options += ["--event-type", EVENT_TYPE, "--category", "business", "--seconds", str(seconds)]
    return bench(url, "publish", *options, *(["--idempotency-keys"] if keys else []))["events_per_s"]


def _alone(measure: Callable[..., float], *arguments: object) -> float:
    """The result of a measurement in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(measure, *arguments).result()


def published(url: str, in_flight: int, seconds: float, keys: bool) -> float:
    """Events/s by the producer for threads."""
    count, options = 0, {"batch_events": BATCH, "in_flight": in_flight, "idempotent": keys}
    with Client(url) as client, client.producer(EVENT_TYPE, **options) as producer:
        begin = time.perf_counter()
        for event in _events(seconds):
            producer.send(event)
            count += 1
        producer.flush()
        return count / (time.perf_counter() - begin)


def published_async(url: str, in_flight: int, seconds: float, keys: bool) -> float:
    """Events/s by the producer for asyncio."""

    async def run() -> float:
        count, options = 0, {"batch_events": BATCH, "in_flight": in_flight, "idempotent": keys}
        async with AsyncClient(url) as client, client.producer(EVENT_TYPE, **options) as producer:
            begin = time.perf_counter()
            for event in _events(seconds):
                await producer.send(event)
                count += 1
            await producer.flush()
            return count / (time.perf_counter() - begin)

    return asyncio.run(run())


def _events(seconds: float) -> Iterator[dict]:
    """Events of `SIZE` bytes with metadata, for so long."""
    text = "x" * (SIZE - len(encode_event({"number": 100_000, "text": ""}, add_metadata=True)))
    number, until_s = 0, time.perf_counter() + seconds
    while number % BATCH or time.perf_counter() < until_s:
        number += 1
        yield {"number": number, "text": text}


if __name__ == "__main__":
    main()
