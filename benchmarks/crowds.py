"""Measures the cost of crowds of greedy clients for other clients: `python -m benchmarks.crowds`.

"unread": 40 connections ask for the largest answers and read nothing; memory of the worker before, meanwhile and after.
"evaluations": changes by another client while 32 connections have filters evaluated, beside none, by number of workers.
"""

import argparse
import contextlib
import json
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx

from benchmarks.over_http import resident_bytes, served
from tests.support.largest_requests import ANYTHING, LARGE, SMALL_COUNT, prepare
from tests.support.tokens import ADMINISTRATOR, write_tokens


CONNECTIONS, EVALUATING = 40, 32
WAIT_S = 3.0
TIMEOUT_S = 60
CHANGES = 40
STREAM = "batch_limit=50&stream_limit=50&batch_flush_timeout=1&stream_timeout=30"


@contextlib.contextmanager
def unread(url: str, path: str) -> Iterator[list[socket.socket]]:
    """Connections on which an answer was asked for, and nothing of it is read."""
    address = urlsplit(url)
    connections: list[socket.socket] = []
    with contextlib.ExitStack() as opened:
        for _ in range(CONNECTIONS):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.settimeout(TIMEOUT_S)
            opened.enter_context(connection).connect((address.hostname, address.port))
            cursors = json.dumps([{"partition": "0", "offset": "BEGIN"}])
            head = f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nX-Nakadi-Cursors: {cursors}\r\n\r\n"
            connection.sendall(head.encode())
            connections.append(connection)
        time.sleep(WAIT_S)
        yield connections


def measure_unread(small: int) -> None:
    """Print memory for each kind of answer."""
    with served(1) as url, httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        world = prepare(client, small)
        paths = {
            "all event types": "/event-types",
            "versions of a schema": f"/event-types/{LARGE}/schemas?limit=1000",
            "audit trail with states": "/audit?limit=1000&states=true",
            "export of the audit trail": "/audit?format=ndjson&states=true",
            "dead letters": f"/subscriptions/{world.subscription}/dead-letters?limit=1000",
            "page of events": f"/console/event-types/{ANYTHING}/events?start=oldest",
            "page of events as JSON": f"/console/event-types/{ANYTHING}/events?start=oldest&format=json",
            "page of a schema": f"/console/event-types/{LARGE}?tab=schema",
            "stream of large events": f"/event-types/{ANYTHING}/events?{STREAM}",
            "stream through the console": f"/console/api/{quote(f'event-types/{ANYTHING}/events')}?{STREAM}",
            "tile of entries": "/log/tile/entries/000",
            "metrics": "/metrics",
            "description of the API": "/openapi.json",
        }
        columns = ("before", "meanwhile", "after", "/health, ms", "200")
        print("{:<40} {:>8} {:>10} {:>8} {:>12} {:>4}".format("40 read nothing, MB", *columns))
        for name, path in paths.items():
            before = resident_bytes(url)
            with unread(url, path) as connections:
                meanwhile, begin_s = resident_bytes(url), time.perf_counter()
                client.get("/health")
                taken_ms = 1_000 * (time.perf_counter() - begin_s)
                # Requests without the answer 200 are refused, or wait for others to be read.
                answered = sum(_is_answered(each) for each in connections)
            time.sleep(WAIT_S)
            sizes = (before / 1e6, meanwhile / 1e6, resident_bytes(url) / 1e6)
            figures = (*sizes, taken_ms, answered)
            print("{:<40} {:>8.0f} {:>10.0f} {:>8.0f} {:>12.1f} {:>4}".format(name, *figures), flush=True)


def _is_answered(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(12) == b"HTTP/1.1 200"
    except BlockingIOError:
        return False


def evaluate(url: str, ended: threading.Event, number: int) -> None:
    """Have a filter evaluated again and again."""
    wanted = " || ".join([f"event.a == {number}"] * 60)
    body = {"filter": wanted, "events": [{"a": ["x" * 12_000]}] * 20}
    with httpx.Client(base_url=url, timeout=TIMEOUT_S) as client:
        while not ended.is_set():
            with contextlib.suppress(httpx.HTTPError):
                client.post("/filter-evaluations", json=body, headers={"Authorization": "Bearer greedy"})


def measure_evaluations(workers: int, folder: Path) -> None:
    """Print how long changes take."""
    tokens = folder / "tokens.toml"
    write_tokens(tokens, {"greedy": {"uid": "greedy"}, "changing": {"uid": "stups_nakadi", "realm": "/services"}})
    settings = {
        **ADMINISTRATOR,
        "RIONI_AUTH_MODE": "basic",
        "RIONI_AUTH_TOKENS": str(tokens),
        "RIONI_QUOTA_CHANGES_PER_MINUTE": "0",
    }
    with served(workers, environment=settings) as url:
        for crowd in (0, EVALUATING):
            ended, taken = threading.Event(), []
            threads = [threading.Thread(target=evaluate, args=(url, ended, number)) for number in range(crowd)]
            for thread in threads:
                thread.start()
            time.sleep(1)
            with httpx.Client(base_url=url, timeout=TIMEOUT_S, headers={"Authorization": "Bearer changing"}) as client:
                for number in range(CHANGES):
                    schema = {"type": "json_schema", "schema": "{}"}
                    name = f"crowd.w{workers}-{crowd}-{number}"
                    body = {"name": name, "owning_application": "x", "category": "undefined", "schema": schema}
                    begin_s = time.perf_counter()
                    answer = client.post("/event-types", json=body)
                    assert answer.status_code == httpx.codes.CREATED, answer.text
                    taken.append(1_000 * (time.perf_counter() - begin_s))
            ended.set()
            for thread in threads:
                thread.join()
            print(
                f"{workers} worker(s), {crowd:>2} connections evaluate: "
                f"a change takes {statistics.median(taken):.0f} ms, at most {max(taken):.0f}",
                flush=True,
            )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", type=int, default=SMALL_COUNT, help="event types and subscriptions")
    parser.add_argument("--only", choices=("unread", "evaluations"), help="measure one of the two")
    options = parser.parse_args()
    if options.only != "unread":
        with tempfile.TemporaryDirectory() as folder:
            for workers in (1, 2):
                measure_evaluations(workers, Path(folder))
    if options.only != "evaluations":
        measure_unread(options.small)


if __name__ == "__main__":
    main()
