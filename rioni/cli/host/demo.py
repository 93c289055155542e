"""`rioni demo`: a year of real flights through a real broker, with every promise checked on the way."""

import contextlib
import logging
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rioni.cli.host.demo_flights import DATASETS, FLIGHTS, OWNER, archive_and_query, batches, rows
from rioni.cli.terminal.output import progress_bars
from rioni.client import Client, EventType, NotFound, Subscription
from rioni.config.settings import Config
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import Invalid, RioniError, Unavailable
from rioni.domain.timestamps import utc_text
from rioni.files.extras import check_spark
from rioni.operations import history as history_operations
from rioni.operations import rebuild as rebuild_operations
from rioni.operations.rebuild import RebuildRequest


PUBLISHERS = 4
CONSUMERS = 2
EVENTS_PER_BATCH = 500
UNCOMMITTED_MAX = 5_000
START_S = 30
STALLED_S = 60
"""The demo fails if no event arrives for this long."""
AUDIT_ENTRIES = 8
SERVES = re.compile(r"Rioni serves \S+:(\d+)\S* with ")
BLOCKS = " ▁▂▃▄▅▆▇█"


class Demo(RioniError):
    """A promise that the broker makes was found broken."""


def run(config: Config, *, exit_after: bool = False, flights: int | None = None) -> None:
    """Run the demo and leave the broker serving.

    Args:
        config: where to listen, and the data directory.
        exit_after: end after the report.
        flights: publish only this many of the year's flights.

    Raises:
        RioniError: something that the demo needs is missing, or a promise is broken.
    """
    if config.tls_certificate is not None:
        raise Invalid("The demo speaks HTTP alone. Run it without tls_certificate and tls_key.")
    console = Console(soft_wrap=True)
    check_spark()
    tables = [rows(dataset, flights if dataset is FLIGHTS else None) for dataset in DATASETS]
    with _broker(config) as (server, served):
        base = f"http://{host_and_port(served.host, served.port)}"
        with Client(base, token=lambda: None, timeout_s=STALLED_S, attempts=1) as client:
            _create(client)
            console.print(f"Event types: {', '.join(dataset.event_type for dataset in DATASETS)}")
            _publish(console, client, tables)
            published = tables[DATASETS.index(FLIGHTS)]
            subscription = _consume(console, client, published)
        archive_and_query(console, base, FLIGHTS.event_type, published)
        _audit(console, served)
        _rebuild(console, served)
        if not exit_after:
            _leave_serving(console, base, subscription, server)
    console.print("The broker has ended.")


@contextlib.contextmanager
def _broker(config: Config) -> Iterator[tuple[subprocess.Popen[str], Config]]:
    """Run `rioni serve` as another process, as this one must stay free of gevent for Spark; yields its address, too."""
    command = [sys.executable, "-m", "rioni", "serve", "--host", config.host, "--port", str(config.port)]
    command += ["--data", str(config.data), "--workers", str(config.workers)]
    environment = dict(os.environ)
    if config.log_level == "info":
        # Messages about streams that begin and end are no news here, and would be written between the progress bars.
        environment["RIONI_LOG_LEVEL"] = "warning"
        logging.getLogger("rioni.client").setLevel(logging.WARNING)
    server = subprocess.Popen(command, start_new_session=True, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield server, msgspec.structs.replace(config, port=_announced_port(server))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()  # waits: the user may interrupt the command


def _announced_port(server: subprocess.Popen[str]) -> int:
    """The port that this broker reports in its log: another broker may answer on the one that was asked for."""
    ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    threading.Thread(target=_relay, args=(server, ports), daemon=True).start()
    try:
        port = ports.get(timeout=START_S)
    except queue.Empty as ex:
        raise Unavailable(f"The broker did not start within {START_S} s.") from ex
    if port is None:
        raise Unavailable("The broker did not start; its output above contains the reason.")
    return port


def _relay(server: subprocess.Popen[str], ports: queue.SimpleQueue[int | None]) -> None:
    """Pass on the broker's output to stderr, and the port once it serves; None when it has ended."""
    for line in server.stderr or ():
        sys.stderr.write(line)
        if found := SERVES.match(line):
            ports.put(int(found[1]))
    ports.put(None)


def _create(client: Client) -> None:
    """Create the event types; those that an earlier demo has left are replaced."""
    for subscription in client.subscriptions.list(owning_application=OWNER):
        client.subscriptions.delete(subscription.id)
    for dataset in DATASETS:
        with contextlib.suppress(NotFound):
            client.event_types.delete(dataset.event_type)
        client.event_types.create(EventType.of(dataset.definition()))


def _publish(console: Console, client: Client, tables: list[list[dict[str, Any]]]) -> None:
    total = sum(map(len, tables))
    now = utc_text(datetime.now(UTC))
    begin = time.monotonic()
    with _progress(console) as progress:
        task = progress.add_task("Publishing", total=total)

        def publish(publisher: int) -> None:
            for dataset, records in zip(DATASETS, tables, strict=True):
                # One publisher has all events of a key, so that their order is the order of the table.
                mine = [record for record in records if hash(record[dataset.key]) % PUBLISHERS == publisher]
                for count, body in batches(dataset, mine, EVENTS_PER_BATCH, now):
                    client.request(
                        "POST",
                        "/event-types/{name}/events",
                        path={"name": dataset.event_type},
                        content=body,
                        headers={"Content-Type": "application/json"},
                    )
                    progress.advance(task, count)

        _in_parallel(publish, PUBLISHERS)
        progress.update(task, completed=total)
    seconds = time.monotonic() - begin
    console.print(f"Published {total:,} events in {seconds:.1f} s: {total / seconds:,.0f} events/s, each one on disk")


def _in_parallel(work: Any, count: int) -> None:
    """Run `work(0)` to `work(count - 1)` in threads, and raise the error of the first one that failed."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as ex:  # noqa: BLE001 - raised again below, in the thread that waits
            failures.append(ex)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # waits: the user may interrupt the command
    if failures:
        raise failures[0]


class Received:
    """The events that the consumers received, and whether they are those that were published."""

    def __init__(self, flights: list[dict[str, Any]]) -> None:
        self.missing = len(flights)
        self.redelivered = 0
        self.batches = 0
        self.partitions: Counter[str] = Counter()
        self._seen = bytearray(len(flights))
        self._last: dict[str | None, int] = {}
        self._lock = threading.Lock()

    def add(self, partition: str, events: list[dict[str, Any]]) -> None:
        """Take a batch.

        Raises:
            Demo: an event overtook another one of the same key.
        """
        with self._lock:
            self.batches += 1
            for event in events:
                number, key = event["number"], event["tailnum"]
                if self._seen[number]:
                    self.redelivered += 1
                    continue
                if number < self._last.get(key, -1):
                    raise Demo(f"Flight {number} of {key} came after flight {self._last[key]}")
                self._seen[number] = 1
                self._last[key] = number
                self.missing -= 1
                self.partitions[partition] += 1


def _consume(console: Console, client: Client, flights: list[dict[str, Any]]) -> str:
    """Consume and commit every flight; returns the id of the subscription."""
    wanted = Subscription(owning_application=OWNER, event_types=[FLIGHTS.event_type], read_from="begin")
    subscription = client.subscriptions.create(wanted).id
    consumers = [
        client.subscription(
            subscription, batch_limit=EVENTS_PER_BATCH, max_uncommitted_events=UNCOMMITTED_MAX, stream_timeout=600
        )
        for _ in range(CONSUMERS)
    ]
    received, lags = Received(flights), [len(flights)]
    begin = time.monotonic()
    with _progress(console) as progress:
        task = progress.add_task("Consuming", total=len(flights))

        def work(number: int) -> None:
            if number < CONSUMERS:
                for batch in consumers[number].batches():
                    received.add(batch.partition, [event.data for event in batch])
                return
            try:
                watch()
            finally:
                for consumer in consumers:
                    consumer.stop()

        def watch() -> None:
            reached, reached_s = (received.missing, lags[-1]), time.monotonic()
            while received.missing or lags[-1]:
                time.sleep(0.2)
                lags.append(_lag(client, subscription))
                progress.update(task, completed=len(flights) - received.missing)
                if (received.missing, lags[-1]) != reached:
                    reached, reached_s = (received.missing, lags[-1]), time.monotonic()
                elif time.monotonic() - reached_s > STALLED_S:
                    raise Demo(f"{received.missing:,} events have not come within {STALLED_S} s")

        _in_parallel(work, CONSUMERS + 1)
        progress.update(task, completed=len(flights))
    seconds = time.monotonic() - begin
    console.print(
        f"Consumed {len(flights):,} events in {received.batches:,} batches, each one committed, by {CONSUMERS} "
        f"consumers in {seconds:.1f} s: {len(flights) / seconds:,.0f} events/s"
    )
    console.print("Lag     " + _sparkline(lags) + f"  {lags[0]:,} → {lags[-1]:,}")
    most = max(received.partitions.values(), default=1)
    for partition, count in sorted(received.partitions.items()):
        console.print(f"  partition {partition} {'█' * round(40 * count / most):<40} {count:>8,}")
    console.print(f"Nothing is missing, order holds for every aircraft ({received.redelivered:,} events redelivered)")
    return subscription


def _lag(client: Client, subscription: str) -> int:
    stats = client.subscriptions.stats(subscription)
    return sum(partition.unconsumed_events or 0 for each in stats for partition in each.partitions)


def _sparkline(values: Sequence[int], width: int = 40) -> str:
    step = max(1, -(-len(values) // width))
    sampled = [*values[::step], values[-1]]
    most = max(sampled) or 1
    return "".join(BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in sampled)


def _audit(console: Console, config: Config) -> None:
    console.print("The audit trail ends with (rioni audit shows all of it):")
    for entry in list(history_operations.audit(config))[-AUDIT_ENTRIES:]:
        when, who = entry["recorded_at"][11:19], f"{entry['actor']}@{entry['client']}"
        line = f"  {entry['position']:>4} {when} {who} {entry['topic']} {entry['resource']:.36}"
        console.print(line, highlight=False, markup=False)


def _rebuild(console: Console, config: Config) -> None:
    differences: list[Any] = []
    with progress_bars() as show:
        report = rebuild_operations.rebuild(
            config,
            RebuildRequest(),
            progress=lambda phase, done, total: show(f"Spark: {phase}", done, total),
            found=differences.append,
        )
    if differences:
        raise Demo("The rebuilt projections differ from the live ones: " + "; ".join(map(str, differences)))
    console.print(
        f"Spark rebuilt all projections from {report.entries:,} log entries in {report.seconds:.1f} s: "
        "they equal the live ones, row by row"
    )


def _leave_serving(console: Console, base: str, subscription: str, server: subprocess.Popen[str]) -> None:
    console.print("\nThe broker goes on serving; Ctrl-C ends it. Try:")
    events = f"{base}/event-types/{FLIGHTS.event_type}/events?batch_limit=2&stream_limit=4"
    cursors = '[{"partition":"0","offset":"BEGIN"}]'
    for line in (
        f"curl {base}/event-types/{FLIGHTS.event_type}/partitions",
        f"curl -H 'X-Nakadi-Cursors: {cursors}' '{events}'",
        f"curl {base}/subscriptions/{subscription}/stats",
    ):
        console.print(f"  {line}", highlight=False, markup=False)
    with contextlib.suppress(KeyboardInterrupt):
        server.wait()  # waits: the user may interrupt the command


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<12}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
