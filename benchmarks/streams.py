"""Streams, in one run: rate, fan-out, commits, balancing, latency. `python -m benchmarks.streams`.

The rate of consuming stands beside the store alone, many streams of one event type beside few, and latencies beside the
rate at which events were published. Client, server and disk share the machine. It stops by itself after about
20 times `--seconds`.
"""

import argparse
import contextlib
import os
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import NamedTuple

import orjson

from benchmarks.over_http import bench, consumed, cpu_s, resident_bytes, server, store_alone
from rioni.cli.broker.load_client import LoadConnection, LoadTarget, Loop, Report


FANS = (100, 1_000)
IDLE, BESIDE = 9_800, 100
"""Streams of one worker that get nothing, and that get events."""
FIRST = 10
"""Streams that come and go before: what a process needs for its first ones is no matter of each stream."""
FAN_PER_S = 5
"""Requests of one event each a second, which every stream gets."""
CONSUMERS, PARTITIONS = 50, 100
LATENCY_PER_S, BATCH = 100, 10
"""Requests a second, and the events of each: 1,000 events/s in all."""
BALANCE_S = 60
OPENED_AT_ONCE = 200
COMMITTERS = 64
"""Clients that commit for one stream, each with one request at a time."""
WANTED = {"owning_application": "benchmark"}
SETTINGS = {
    "RIONI_STREAMS_PER_PARTITION_MAX": "100000",
    "RIONI_STREAMS_PER_CLIENT_MAX": "100000",
    "RIONI_PARTITIONS_MAX": str(PARTITIONS),
    "RIONI_SUBSCRIPTION_PARTITIONS_MAX": str(PARTITIONS),
}


class Streams:
    """Low-level streams of one event type; they measure how old what they get is."""

    def __init__(self, at: LoadTarget, loop: Loop, name: str, count: int) -> None:
        self._at, self._loop, self._name = at, loop, name
        self._connections = [LoadConnection(at, loop) for _ in range(count)]
        self.report = Report("delivered", "")

    def open(self) -> None:
        """Open them all, some at a time, and wait until the answers have begun."""
        head = self._at.head("GET", f"/event-types/{self._name}/events?batch_flush_timeout=600&batch_limit=1")
        for first in range(0, len(self._connections), OPENED_AT_ONCE):
            opened = self._connections[first : first + OPENED_AT_ONCE]
            for connection in opened:
                connection.send(head, _ended, self._came)
            assert _run(self._loop, BALANCE_S, lambda some=opened: all(each.answer.status == 200 for each in some))

    def close(self) -> None:
        """Go without a word."""
        for connection in self._connections:
            connection.close()

    def _came(self, data: bytes) -> None:
        now_s = time.monotonic()
        for piece in data.split(b'"sent_s":')[1:]:
            self.report.latencies_s.append(now_s - float(piece.partition(b"}")[0].partition(b",")[0]))
            self.report.add_events(1, 0)


class Publisher:
    """Publishes at a steady rate, over as many connections as that needs."""

    def __init__(self, at: LoadTarget, loop: Loop, name: str, batch: int) -> None:
        self._at, self._loop, self._path, self._batch = at, loop, f"/event-types/{name}/events", batch
        self._connections: list[LoadConnection] = []

    def publish(self) -> None:
        """Send one batch, whose events say when."""
        body = orjson.dumps([{"sent_s": time.monotonic()}] * self._batch)
        free = next((each for each in self._connections if each.idle), None)
        if free is None:
            free = LoadConnection(self._at, self._loop)
            self._connections.append(free)
        free.send(self._at.head("POST", self._path, len(body)) + body, _published)


def _ended(status: int, body: bytes) -> None:
    raise AssertionError(f"a stream ended with {status}: {body[:200]!r}")


def _published(status: int, body: bytes) -> None:
    assert status == 200, body


def _run(loop: Loop, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
    loop.run(time.monotonic() + seconds, done)
    return done()


def _call(url: str, path: str, body: object = None) -> dict:
    data = None if body is None else orjson.dumps(body)
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return orjson.loads(answer.read())


def create_event_type(url: str, name: str, partitions: int = 1) -> None:
    """Create an event type that takes any object."""
    load = {"messages_per_minute": 1, "message_size": 1, "read_parallelism": partitions, "write_parallelism": 1}
    schema = {"type": "json_schema", "schema": '{"additionalProperties": true}'}
    definition = {"name": name, "owning_application": "benchmark", "category": "undefined"}
    _call(url, "/event-types", definition | {"schema": schema, "default_statistic": load})


def _latency(url: str, name: str, streams: int, per_s: int, batch: int, seconds: float) -> None:
    """Publish steadily and print what all streams of the event type saw of it."""
    create_event_type(url, name)
    with contextlib.closing(Loop()) as loop:
        at = LoadTarget(url)
        first = Streams(at, loop, name, FIRST)
        first.open()
        first.close()
        before = resident_bytes(url)
        fan = Streams(at, loop, name, streams)
        fan.open()
        memory, used_before_s = resident_bytes(url) - before, cpu_s(url)
        publisher, begin_s = Publisher(at, loop, name, batch), time.monotonic()
        for turn in range(int(seconds * per_s)):
            _run(loop, begin_s + turn / per_s - time.monotonic())
            publisher.publish()
        expected = int(seconds * per_s) * batch * streams
        complete = _run(loop, seconds, lambda: fan.report.events >= expected)
        report, used_s = fan.report, cpu_s(url) - used_before_s
        p50_ms, p99_ms = report.quantile_ms(0.5), report.quantile_ms(0.99)
        print(
            f"{streams:>6,} streams, {per_s * batch:>5,} events/s: {p50_ms:8.1f} ms p50 {p99_ms:8.1f} ms p99, "
            f"{used_s:6.2f} s CPU, {memory / streams / 1024:6.1f} kB a stream"
        )
        if not complete:
            print(f"only {report.events:,} of {expected:,} events were delivered in time")


class Committer:
    """Commits further and further in one partition, one request after the other."""

    def __init__(
        self, connection: LoadConnection, head: Callable[[int], bytes], partition: str, report: Report
    ) -> None:
        self._connection, self._head, self._partition, self._report = connection, head, partition, report
        self._position, self._sent_s = 0, 0.0

    def next(self) -> None:
        """Send the next request."""
        self._sent_s, self._position = time.monotonic(), self._position + 1
        cursor = {"event_type": "commits", "partition": self._partition, "cursor_token": "none"}
        body = orjson.dumps({"items": [cursor | {"offset": f"001-0001-{self._position:018}"}]})
        self._connection.send(self._head(len(body)) + body, self._answered)

    def _answered(self, status: int, body: bytes) -> None:
        assert status == 204, body
        self._report.add_answer(status, body, self._sent_s)
        self.next()


class Commits(NamedTuple):
    """The cost of committing."""

    rate: float
    """Commits a second."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU of the workers for a commit."""


def commits(url: str, seconds: float) -> Commits:
    """Commit for a stream that has nothing to send, by many clients, one worker; blocks that long."""
    create_event_type(url, "commits", COMMITTERS)
    path = f"/subscriptions/{_call(url, '/subscriptions', WANTED | {'event_types': ['commits']})['id']}"
    report = Report("committed", "commits")
    with contextlib.closing(Loop()) as loop:
        at = LoadTarget(url)
        stream = LoadConnection(at, loop)
        stream.send(at.head("GET", f"{path}/events?batch_flush_timeout=600"), _ended, lambda _: None)
        _run(loop, BALANCE_S, lambda: stream.answer.status == 200)
        stream_id = stream.answer.headers[b"x-nakadi-streamid"].decode()

        def head(size: int) -> bytes:
            return at.head("POST", f"{path}/cursors", size, X_Nakadi_StreamId=stream_id)

        begin_s = cpu_s(url)
        for number in range(COMMITTERS):
            Committer(LoadConnection(at, loop), head, str(number), report).next()
        _run(loop, seconds)
        count, used_s = len(report.latencies_s), cpu_s(url) - begin_s
    return Commits(count / seconds, report.quantile_ms(0.5), report.quantile_ms(0.99), used_s / count * 1e6)


def _balance(url: str) -> None:
    """Open the streams of a subscription all at once, and wait until each has as many partitions as all others."""
    create_event_type(url, "balance", PARTITIONS)
    path = f"/subscriptions/{_call(url, '/subscriptions', WANTED | {'event_types': ['balance']})['id']}"
    with contextlib.closing(Loop()) as loop:
        at, begin_s = LoadTarget(url), time.monotonic()
        for _ in range(CONSUMERS):
            LoadConnection(at, loop).send(
                at.head("GET", f"{path}/events?batch_flush_timeout=600"), _ended, lambda _: None
            )

        def balanced() -> bool:
            (item,) = _call(url, f"{path}/stats")["items"]
            owners = [each["stream_id"] for each in item["partitions"] if each["state"] == "assigned"]
            return len(owners) == PARTITIONS and len(set(owners)) == CONSUMERS

        found = False
        while not found and time.monotonic() - begin_s < BALANCE_S:
            _run(loop, 0.05)
            found = balanced()
        took = f"{time.monotonic() - begin_s:.2f} s" if found else f"not within {BALANCE_S} s"
        print(f"{CONSUMERS} consumers on {PARTITIONS} partitions balanced: {took}")


def _beside_idle_streams(url: str, seconds: float) -> None:
    """Print how soon some streams get events while many others wait for theirs."""
    create_event_type(url, "idle")
    with contextlib.closing(Loop()) as loop:
        idle, before = Streams(LoadTarget(url), loop, "idle", IDLE), resident_bytes(url)
        idle.open()
        print(f"{IDLE:,} idle streams, {(resident_bytes(url) - before) / IDLE / 1024:.1f} kB each; beside them:")
        _latency(url, "beside", BESIDE, FAN_PER_S, 1, seconds)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each figure")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.environ.update(SETTINGS)
    seconds = str(options.seconds)

    def progress(what: str) -> None:
        print(f"… {what}", file=sys.stderr, flush=True)

    progress("the store alone")
    _, alone = store_alone([1], options.seconds / 2)
    progress("consuming")
    with server(1) as (url, _):
        found = bench(url, "publish", "--connections", "32", "--seconds", str(options.seconds * 3))
        rate = consumed(url, found["events"], options.seconds)["events_per_s"]
        print(f"consume, one worker: {rate:,.0f} events/s, {rate / alone:.0%} of the store alone")
        found = bench(url, "consume", "--seconds", seconds, "--batch", "1", "--window", "1", "--connections", "8")
        rate = found["requests"] / found["seconds"]
        print(f"commits, one worker: {rate:,.0f} a second, {found['p50_ms']} ms p50, {found['p99_ms']} ms p99")
        rate, p50_ms, p99_ms, used_us = commits(url, options.seconds)
        print(
            f"commits of {COMMITTERS} clients, one worker: {rate:,.0f} a second, "
            f"{p50_ms:.1f} ms p50, {p99_ms:.1f} ms p99, {used_us:.0f} us CPU each"
        )
    for streams in FANS:
        progress(f"{streams} streams of one event type")
        with server(options.workers) as (url, _):
            _latency(url, "fan", streams, FAN_PER_S, 1, options.seconds)
    progress(f"{IDLE} idle streams")
    with server(1) as (url, _):
        _beside_idle_streams(url, options.seconds)
    progress("latency")
    with server(options.workers) as (url, _):
        _latency(url, "latency", 1, LATENCY_PER_S, BATCH, options.seconds)
    progress("balancing")
    with server(options.workers) as (url, _):
        _balance(url)


if __name__ == "__main__":
    main()
