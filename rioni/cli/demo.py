"""`rioni demo`: a year of real flights through a real broker, with every promise checked on the way."""

import contextlib
import http.client
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
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rioni.cli.demo_flights import DATASETS, FLIGHTS, OWNER, archive_and_query, batches, rows
from rioni.config.settings import Config
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import Invalid, RioniError, Unavailable
from rioni.domain.timestamps import utc_text
from rioni.operations import admin as admin_operations
from rioni.operations import rebuild as rebuild_operations
from rioni.operations.rebuild import Wanted
from rioni.tools.api_client import refused


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
    admin_operations.check_spark()
    tables = [rows(dataset, flights if dataset is FLIGHTS else None) for dataset in DATASETS]
    with _broker(config) as (server, served):
        client = DemoClient(served)
        _create(client)
        console.print(f"Event types: {', '.join(dataset.event_type for dataset in DATASETS)}")
        _publish(console, served, tables)
        published = tables[DATASETS.index(FLIGHTS)]
        _consume(console, served, client, published)
        archive_and_query(console, f"http://{host_and_port(served.host, served.port)}", FLIGHTS.event_type, published)
        _audit(console, served)
        _rebuild(console, served)
        if not exit_after:
            _leave_serving(console, served, client, server)
    console.print("The broker has ended.")


class DemoClient:
    """One connection to the broker; any status that the demo does not expect is an error."""

    def __init__(self, config: Config) -> None:
        self._connection = http.client.HTTPConnection(config.host, config.port, timeout=STALLED_S)

    def call(self, method: str, path: str, body: Any = None, *, accept: Sequence[int] = (), **headers: str) -> Any:
        """Make a request and return the JSON of the answer, None if it is empty.

        Args:
            method: the verb.
            path: with the query.
            body: bytes, or a value to send as JSON.
            accept: statuses from 300 on that are fine.
            headers: with `_` for `-`.

        Raises:
            RequestRefused: the broker answers with another status.
        """
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        self._connection.request(method, path, data, sent)
        response = self._connection.getresponse()
        answer = response.read()
        if response.status >= http.client.MULTIPLE_CHOICES and response.status not in accept:
            raise refused(method, path, response, answer)
        return orjson.loads(answer) if answer.startswith((b"{", b"[")) else None

    def stream(self, path: str) -> http.client.HTTPResponse:
        """Open a stream."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        if response.status != http.client.OK:
            raise refused("GET", path, response, response.read())
        return response

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@contextlib.contextmanager
def _broker(config: Config) -> Iterator[tuple[subprocess.Popen[str], Config]]:
    """Run `rioni serve` as another process, as this one must stay free of gevent for Spark; yields its address, too."""
    command = [sys.executable, "-m", "rioni", "serve", "--host", config.host, "--port", str(config.port)]
    command += ["--data", str(config.data), "--workers", str(config.workers)]
    environment = dict(os.environ)
    if config.log_level == "info":
        # Messages about streams that begin and end are no news here, and would be written between the progress bars.
        environment["RIONI_LOG_LEVEL"] = "warning"
    server = subprocess.Popen(command, start_new_session=True, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield server, msgspec.structs.replace(config, port=_announced_port(server))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()


def _announced_port(server: subprocess.Popen[str]) -> int:
    """The port that this broker reports in its log: another broker may answer on the one that was asked for."""
    ports: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    threading.Thread(target=_relay, args=(server, ports), daemon=True).start()
    try:
        port = ports.get(timeout=START_S)
    except queue.Empty as ex:
        raise Unavailable(f"The broker did not start within {START_S} s.") from ex
    if port is None:
        raise Unavailable("The broker did not start; it says why above.")
    return port


def _relay(server: subprocess.Popen[str], ports: queue.SimpleQueue[int | None]) -> None:
    """Pass on the broker's output to stderr, and the port once it serves; None when it has ended."""
    for line in server.stderr or ():
        sys.stderr.write(line)
        if found := SERVES.match(line):
            ports.put(int(found[1]))
    ports.put(None)


def _create(client: DemoClient) -> None:
    """Create the event types; those that an earlier demo has left are replaced."""
    listing = client.call("GET", f"/subscriptions?owning_application={OWNER}&limit=1000")
    for subscription in listing["items"]:
        client.call("DELETE", f"/subscriptions/{subscription['id']}")
    for dataset in DATASETS:
        client.call("DELETE", f"/event-types/{dataset.event_type}", accept=[404])
        client.call("POST", "/event-types", dataset.definition())


def _publish(console: Console, config: Config, tables: list[list[dict[str, Any]]]) -> None:
    total = sum(map(len, tables))
    now = utc_text(datetime.now(UTC))
    begin = time.monotonic()
    with _progress(console) as progress:
        task = progress.add_task("Publishing", total=total)

        def publish(publisher: int) -> None:
            client = DemoClient(config)
            for dataset, records in zip(DATASETS, tables, strict=True):
                # One publisher has all events of a key, so that their order is the order of the table.
                mine = [record for record in records if hash(record[dataset.key]) % PUBLISHERS == publisher]
                for count, body in batches(dataset, mine, EVENTS_PER_BATCH, now):
                    client.call("POST", f"/event-types/{dataset.event_type}/events", body)
                    progress.advance(task, count)
            client.close()

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
        thread.join()
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


def _consume(console: Console, config: Config, client: DemoClient, flights: list[dict[str, Any]]) -> None:
    wanted = {"owning_application": OWNER, "event_types": [FLIGHTS.event_type], "read_from": "begin"}
    path = f"/subscriptions/{client.call('POST', '/subscriptions', wanted)['id']}"
    received, lags = Received(flights), [len(flights)]
    begin = time.monotonic()
    with _progress(console) as progress:
        task = progress.add_task("Consuming", total=len(flights))

        def work(number: int) -> None:
            if number < CONSUMERS:
                _read(config, path, received)
                return
            watch = DemoClient(config)
            while received.missing or lags[-1]:
                time.sleep(0.2)
                lags.append(_lag(watch, path))
                progress.update(task, completed=len(flights) - received.missing)

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


def _read(config: Config, path: str, received: Received) -> None:
    """Consume and commit until every flight has come."""
    committer = DemoClient(config)
    query = f"batch_limit={EVENTS_PER_BATCH}&max_uncommitted_events={UNCOMMITTED_MAX}&batch_flush_timeout=1"
    last = time.monotonic()
    while received.missing:
        connection = DemoClient(config)
        response = connection.stream(f"{path}/events?{query}&stream_timeout=600")
        stream_id = response.headers["X-Nakadi-StreamId"]
        while received.missing and (line := response.readline()):
            batch = orjson.loads(line)
            if events := batch.get("events"):
                received.add(batch["cursor"]["partition"], events)
                cursors = {"items": [batch["cursor"]]}
                committer.call("POST", f"{path}/cursors", cursors, X_Nakadi_StreamId=stream_id)
                last = time.monotonic()
            elif time.monotonic() - last > STALLED_S:
                raise Demo(f"{received.missing:,} events have not come within {STALLED_S} s")
        connection.close()


def _lag(client: DemoClient, path: str) -> int:
    stats = client.call("GET", f"{path}/stats")
    return sum(partition.get("unconsumed_events", 0) for item in stats["items"] for partition in item["partitions"])


def _sparkline(values: Sequence[int], width: int = 40) -> str:
    step = max(1, -(-len(values) // width))
    sampled = [*values[::step], values[-1]]
    most = max(sampled) or 1
    return "".join(BLOCKS[round(value / most * (len(BLOCKS) - 1))] for value in sampled)


def _audit(console: Console, config: Config) -> None:
    console.print("The audit trail ends with (rioni audit shows all of it):")
    for entry in list(admin_operations.audit(config))[-AUDIT_ENTRIES:]:
        when, who = entry["recorded_at"][11:19], f"{entry['actor']}@{entry['client']}"
        line = f"  {entry['position']:>4} {when} {who} {entry['topic']} {entry['resource']:.36}"
        console.print(line, highlight=False, markup=False)


def _rebuild(console: Console, config: Config) -> None:
    with _progress(console) as progress:
        tasks: dict[str, Any] = {}

        def show(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(f"Spark: {phase}", total=total or None)
            progress.update(tasks[phase], completed=done, total=total or None)

        differences: list[Any] = []
        report = rebuild_operations.rebuild(config, Wanted(), progress=show, found=differences.append)
    if differences:
        raise Demo("The rebuilt projections differ from the live ones: " + "; ".join(map(str, differences)))
    console.print(
        f"Spark rebuilt all projections from {report.entries:,} log entries in {report.seconds:.1f} s: "
        "they equal the live ones, row by row"
    )


def _leave_serving(console: Console, config: Config, client: DemoClient, server: subprocess.Popen[str]) -> None:
    base = f"http://{host_and_port(config.host, config.port)}"
    listing = client.call("GET", f"/subscriptions?owning_application={OWNER}")
    client.close()
    stats = f"{base}/subscriptions/{listing['items'][0]['id']}/stats"
    console.print("\nThe broker goes on serving; Ctrl-C ends it. Try:")
    events = f"{base}/event-types/{FLIGHTS.event_type}/events?batch_limit=2&stream_limit=4"
    cursors = '[{"partition":"0","offset":"BEGIN"}]'
    for line in (
        f"curl {base}/event-types/{FLIGHTS.event_type}/partitions",
        f"curl -H 'X-Nakadi-Cursors: {cursors}' '{events}'",
        f"curl {stats}",
    ):
        console.print(f"  {line}", highlight=False, markup=False)
    with contextlib.suppress(KeyboardInterrupt):
        server.wait()


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description:<12}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
