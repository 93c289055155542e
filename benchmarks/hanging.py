"""Measures requests while a resource that other requests need hangs: `python -m benchmarks.hanging`.

A process holds a lock and is stopped, Kafka is stopped, a token service does not answer. Each time dozens of requests
need what hangs, while one client goes on with what does not: it publishes to another storage, reads the registry and
commits. Beside it stands what the same requests take while nothing hangs. Server, clients and
disk share the machine; Kafka is one broker started for this. It stops by itself.
"""

import argparse
import contextlib
import hashlib
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.over_http import server
from rioni.cli.cluster.cluster import LocalCluster, running_cluster


ROUNDS, HANGING = 300, 40
TIMEOUT_S = 60
BEGIN_S = 1.0
"""So long those that are going to hang have the time to do so."""
TOKEN = "known"
HOLD = (
    "import fcntl, os, signal, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True)"
)
HOLD += "; os.kill(os.getpid(), signal.SIGSTOP)"

Work = Mapping[str, Callable[[], None]]
Hanging = Callable[[], contextlib.AbstractContextManager[object]]


class Client:
    """Requests over one connection."""

    def __init__(self, url: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
        self._headers = {"Content-Type": "application/json"} | headers

    def __call__(self, method: str, path: str, body: Any = None, *, expected: int = 2, **headers: str) -> Any:
        """Returns the JSON of the answer, whose status must be of the expected hundred."""
        sent = None if body is None else json.dumps(body)
        self._connection.request(method, path, sent, self._headers | headers)
        response = self._connection.getresponse()
        read = response.read()
        assert response.status // 100 == expected, (method, path, response.status, read[:500])
        return json.loads(read) if read else None


def main() -> None:
    """Print percentiles for each thing that hangs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    print(f"{rounds} requests of each kind, ms {'':<28} {'p50':>8} {'p99':>8} {'longest':>8}")
    with tempfile.TemporaryDirectory() as folder, running_cluster(postgres=False) as cluster:
        os.environ["RIONI_KAFKA"] = cluster.kafka
        data = Path(folder, "data")
        with server(1, data) as (url, _):
            _storages(url, data, cluster, rounds)
    with tempfile.TemporaryDirectory() as folder:
        _tokens(Path(folder), rounds)


def _storages(url: str, data: Path, cluster: LocalCluster, rounds: int) -> None:
    client = Client(url)
    kafka = {"id": "kafka", "storage_type": "kafka", "kafka_configuration": {"topic_prefix": f"{uuid.uuid4()}-"}}
    client("POST", "/storages", kafka)
    client("POST", "/storages", {"id": "other", "storage_type": "embedded"})
    for storage in ("kafka", "other", "default"):
        client("PUT", f"/storages/default/{storage}")
        _create(client, f"in.{storage}")
        client("POST", f"/event-types/in.{storage}/events", [{"number": 1}])
    subscription = client(
        "POST", "/subscriptions", {"owning_application": "b", "event_types": ["in.default"], "read_from": "begin"}
    )["id"]
    with _stream(url, subscription) as (stream_id, cursors):
        work = {
            "publish": lambda: client("POST", "/event-types/in.default/events", [{"number": 1}]),
            "read the registry": lambda: client("GET", "/event-types"),
            "commit": lambda: client(
                "POST",
                f"/subscriptions/{subscription}/cursors",
                {"items": cursors[-1:]},
                **{"X-Nakadi-StreamId": stream_id},
            ),
        }
        _measure("nothing hangs", work, rounds)

        def requests(method: str, path: str, body: Any = None) -> list[Callable[[], object]]:
            return [lambda: Client(url)(method, path, body, expected=5) for _ in range(HANGING)]

        publish = [{"number": 1}]
        with (
            _held(data / "events-other.db-lock"),
            _under_way(requests("POST", "/event-types/in.other/events", publish)),
        ):
            _measure("the lock of another storage", work, rounds)
        with _held(data / "slots.db-lock"), _under_way(requests("GET", f"/subscriptions/{subscription}/events")):
            _measure("the lock of the streams' slots", work, rounds)
        broker = cluster.kafkas[0]
        broker.pause()
        try:
            changes = [
                *requests("POST", "/event-types/in.kafka/events", publish),
                *requests("GET", "/event-types/in.kafka/partitions"),
            ]
            with _under_way(changes):
                _measure("Kafka", work, rounds)
        finally:
            broker.resume()


def _tokens(folder: Path, rounds: int) -> None:
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nsha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"\nuid = "alice"\n')
    with socket.create_server(("127.0.0.1", 0)) as service:  # it takes connections and never answers
        os.environ |= {
            "RIONI_AUTH_MODE": "basic",
            "RIONI_DEFAULT_ADMIN": "user:alice",
            "RIONI_AUTH_TOKENS": str(tokens),
            "RIONI_AUTH_TOKENINFO_LOCAL": f"http://127.0.0.1:{service.getsockname()[1]}/tokeninfo",
        }
        with server(1) as (url, _):
            client = Client(url, Authorization=f"Bearer {TOKEN}")
            work = {"read the registry": lambda: client("GET", "/event-types")}
            _measure("nothing hangs, with tokens", work, rounds)
            strangers = [Client(url, Authorization=f"Bearer unknown-{number}") for number in range(HANGING)]
            asks = [lambda each=each: each("GET", "/event-types", expected=5) for each in strangers]
            with _under_way(asks):
                _measure("the token service", work, rounds)


def _create(client: Client, name: str) -> None:
    schema = {"type": "json_schema", "schema": "{}"}
    client(
        "POST",
        "/event-types",
        {"name": name, "owning_application": "b", "category": "undefined", "schema": schema},
    )


@contextlib.contextmanager
def _stream(url: str, subscription: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """A stream that stays open; its id and the cursors of its batches."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    path = f"/subscriptions/{subscription}/events?batch_flush_timeout=1&commit_timeout=60&max_uncommitted_events=100000"
    connection.request("GET", path)
    response = connection.getresponse()
    assert response.status == http.client.OK, response.read()
    cursors = [json.loads(response.readline())["cursor"]]

    def drain() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            while line := response.readline():
                cursors.append(json.loads(line)["cursor"])

    reader = threading.Thread(target=drain, daemon=True)
    reader.start()
    try:
        yield response.headers["X-Nakadi-StreamId"], cursors
    finally:
        connection.sock.shutdown(socket.SHUT_RDWR)
        reader.join(TIMEOUT_S)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """A process that holds a lock and is stopped."""
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def _under_way(requests: Sequence[Callable[[], object]]) -> Iterator[None]:
    """Make requests again and again, each in a separate thread, as long as the block lasts."""
    stop = threading.Event()

    def again(request: Callable[[], object]) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                request()

    threads = [threading.Thread(target=again, args=(each,), daemon=True) for each in requests]
    for each in threads:
        each.start()
    time.sleep(BEGIN_S)
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join(TIMEOUT_S)


def _measure(what: str, work: Work, rounds: int) -> None:
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, request in work.items():
            begin_s = time.perf_counter()
            request()
            taken[name].append(1_000 * (time.perf_counter() - begin_s))
    for name, each in taken.items():
        p50, p99 = statistics.median(each), statistics.quantiles(each, n=100)[98]
        print(f"{what + ': ' + name:<54} {p50:>8.1f} {p99:>8.1f} {max(each):>8.1f}", flush=True)


if __name__ == "__main__":
    main()
