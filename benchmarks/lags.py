"""The cost of following lags with few idle subscriptions, and with many: `python -m benchmarks.lags`.

Two servers of two workers have some busy subscriptions each, to whose event types events are published all the time;
one has few idle subscriptions beside them, the other one many. In turns it measures the CPU of the workers while
nothing is published and while it is, how long `/metrics` takes, and how long after a publish request it shows the
event.
"""

import argparse
import contextlib
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.over_http import cpu_s, served
from benchmarks.scale import CLIENTS, Client


FEW = 10
PUBLISH_EVERY_S = 1.0


def prepare(url: str, names: list[str]) -> dict[str, str]:
    """Create an event type for each name, with a subscription that has cursors; the ids of these by name."""
    ids: dict[str, str] = {}

    def some(first: int) -> None:
        client = Client(url)
        for name in names[first::CLIENTS]:
            definition = {
                "name": name,
                "owning_application": "benchmark",
                "category": "undefined",
                "schema": {"type": "json_schema", "schema": "{}"},
            }
            client.call("POST", "/event-types", definition)
            found = client.call("POST", "/subscriptions", {"owning_application": "benchmark", "event_types": [name]})
            ids[name] = found.decode().partition('"id":"')[2].partition('"')[0]
            client.call("PATCH", f"/subscriptions/{ids[name]}/cursors", {"items": []})

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(some, range(CLIENTS)))
    return ids


@contextlib.contextmanager
def publishing(url: str, names: list[str]):
    """Publish an event to each of some event types every second."""
    ended = threading.Event()

    def run() -> None:
        client = Client(url)
        while not ended.is_set():
            begin_s = time.perf_counter()
            for name in names:
                client.call("POST", f"/event-types/{name}/events", [{}])
            ended.wait(max(0.0, PUBLISH_EVERY_S - (time.perf_counter() - begin_s)))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def shown(client: Client, subscription_id: str) -> int:
    """The lag in events that `/metrics` shows."""
    found = client.call("GET", "/metrics").decode()
    name = 'rioni_subscription_lag_events{consumer_group=\\"default\\",owning_application=\\"benchmark\\",subscription='
    rest = found.partition(f'{name}\\"{subscription_id}\\"}}":{{"value":')[2]
    return int(float(rest.partition("}")[0] or 0))


def one_round(url: str, busy: dict[str, str], seconds: float) -> dict[str, float]:
    """Measure one server."""
    client, found = Client(url), {}

    def used(name: str) -> None:
        begin, begin_s = cpu_s(url), time.perf_counter()
        time.sleep(seconds)
        found[name] = 100 * (cpu_s(url) - begin) / (time.perf_counter() - begin_s)

    used("CPU while nothing is published, % of a core")
    with publishing(url, [*busy]):
        used("CPU while events are published, % of a core")
        took_s = []
        for _ in range(20):
            begin_s = time.perf_counter()
            client.call("GET", "/metrics")
            took_s.append(time.perf_counter() - begin_s)
    found["GET /metrics, ms"] = 1e3 * statistics.median(took_s)
    name, subscription_id = next(iter(busy.items()))
    late_s = []
    for _ in range(10):
        time.sleep(1)
        before = shown(client, subscription_id)
        client.call("POST", f"/event-types/{name}/events", [{}])
        begin_s = time.perf_counter()
        while shown(client, subscription_id) == before:
            assert time.perf_counter() < begin_s + 30, "the metric does not follow"
        late_s.append(time.perf_counter() - begin_s)
    found["until /metrics shows an event, ms, median"] = 1e3 * statistics.median(late_s)
    found["until /metrics shows an event, ms, maximum"] = 1e3 * max(late_s)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=10_000, help="idle subscriptions of the second server")
    parser.add_argument("--busy", type=int, default=100, help="busy subscriptions of each")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement of CPU")
    options = parser.parse_args()
    counts = (FEW, options.idle)
    rows: dict[str, dict[int, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        servers = {}
        for count in counts:
            url = stack.enter_context(served(2, data=Path(folder, str(count))))
            prepare(url, [f"idle.{number:06}" for number in range(count)])
            servers[count] = url, prepare(url, [f"busy.{number:06}" for number in range(options.busy)])
        time.sleep(5)
        for _ in range(options.rounds):
            for count in counts:
                for name, figure in one_round(*servers[count], options.seconds).items():
                    rows.setdefault(name, {}).setdefault(count, []).append(figure)
    print(f"{'idle subscriptions':<48} {FEW:>10,} {options.idle:>10,}")
    for name, by_count in rows.items():
        few, many = (statistics.median(by_count[count]) for count in counts)
        print(f"{name:<48} {few:>10,.2f} {many:>10,.2f}")


if __name__ == "__main__":
    main()
