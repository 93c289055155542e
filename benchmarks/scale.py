"""The cost of many event types and subscriptions, beside few: `python -m benchmarks.scale`.

One server has few event types of two partitions, with a subscription each, and one has many. With both it measures,
in turns, how long the next event types take, the first page of each list, publishing single events, and the memory of
a worker; then how long each server takes to start again with what it has.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from benchmarks.over_http import bench, resident_bytes, served


FEW = 10
CLIENTS = 8
"""The number of clients that create at the same time."""
LISTS = (
    "/event-types?limit=20",
    "/event-types?limit=20&name=*.00000*",
    "/event-types",
    "/event-type-facets",
    "/subscriptions?limit=20",
)


class Client:
    """A client with a separate connection."""

    def __init__(self, url: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """Send a request; the body of the answer, which must not be an error."""
        data = None if body is None else orjson.dumps(body)
        self._connection.request(method, path, data, {"Content-Type": "application/json"})
        with self._connection.getresponse() as answer:
            found = answer.read()
            assert answer.status < 300, (method, path, answer.status, found)
        return found


def create(client: Client, number: int) -> None:
    """Create an event type of two partitions, and a subscription for it."""
    name = f"benchmark.scale.{number:06}"
    load = {"messages_per_minute": 1, "message_size": 1, "read_parallelism": 2, "write_parallelism": 2}
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "total": {"type": "number"}}}
    definition = {
        "name": name,
        "owning_application": "benchmark",
        "category": "undefined",
        "schema": {"type": "json_schema", "schema": orjson.dumps(schema).decode()},
        "default_statistic": load,
    }
    client.call("POST", "/event-types", definition)
    client.call("POST", "/subscriptions", {"owning_application": "benchmark", "event_types": [name]})


def create_all(url: str, numbers: range) -> float:
    """Create event types and subscriptions with some clients; changes per second."""
    begin_s = time.perf_counter()

    def some(first: int) -> None:
        client = Client(url)
        for number in numbers[first::CLIENTS]:
            create(client, number)
            if number % 1_000 == 0:
                print(f"{number:,} of {numbers.stop:,}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(some, range(CLIENTS)))
    return 2 * len(numbers) / (time.perf_counter() - begin_s)


def one_round(url: str, first: int, seconds: float) -> dict[str, float]:
    """Measure one server; milliseconds, but for events per second."""
    client, found = Client(url), {}

    def timed(name: str, times: int, call) -> None:
        took_s = []
        for _ in range(times):
            begin_s = time.perf_counter()
            call()
            took_s.append(time.perf_counter() - begin_s)
        found[name] = 1e3 * statistics.median(took_s)

    numbers = iter(range(first, first + FEW))
    timed("create an event type and a subscription, ms", FEW, lambda: create(client, next(numbers)))
    for path in LISTS:
        timed(f"GET {path}, ms", 10, lambda path=path: client.call("GET", path))
    timed("GET one event type, ms", 200, lambda: client.call("GET", "/event-types/benchmark.scale.000003"))
    figures = bench(url, "publish", "--connections", "8", "--batch", "1", "--size", "200", "--seconds", str(seconds))
    found["one event a request, per second"] = figures["events_per_s"]
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=10_000, help="event types, with a subscription each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of publishing, each time")
    options = parser.parse_args()
    counts = (FEW, options.many)
    rows: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        urls = {}
        for count in counts:
            urls[count] = stack.enter_context(served(1, data=Path(folder, str(count))))
            memory = resident_bytes(urls[count])
            rate = create_all(urls[count], range(count))
            memory = (resident_bytes(urls[count]) - memory) / count / 1024
            rows.setdefault("changes per second", {})[count] = [rate]
            rows.setdefault("memory of each, kB", {})[count] = [memory]
        for number in range(options.rounds):
            for count in counts:
                for name, figure in one_round(urls[count], count + number * FEW, options.seconds).items():
                    rows.setdefault(name, {}).setdefault(count, []).append(figure)
        stack.close()
        for _ in range(options.rounds):
            for count in counts:
                begin_s = time.perf_counter()
                with served(1, data=Path(folder, str(count))) as url:
                    rows.setdefault("start until the first answer, s", {}).setdefault(count, []).append(
                        time.perf_counter() - begin_s
                    )
                    memory = resident_bytes(url) / 1e6
                rows.setdefault("memory of a worker after the start, MB", {}).setdefault(count, []).append(memory)
    print(f"{'':<44} {FEW:>10,} {options.many:>10,} {'ratio':>8}")
    for name, by_count in rows.items():
        few, many = (statistics.median(by_count[count]) for count in counts)
        print(f"{name:<44} {few:>10,.2f} {many:>10,.2f} {many / few:>8.2f}")


if __name__ == "__main__":
    main()
