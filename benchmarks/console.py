"""Measures the cost of open consoles, and whether they slow publishing: `python -m benchmarks.console`.

A server of two workers is measured in turns alone, with many open overviews, whose charts ask for new values every ten
seconds, and with live views of an event type to which events are published as fast as possible: as the page asks for
them, and of every event. Consoles, publishers and server share the machine.
"""

import argparse
import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.client import HTTPConnection
from urllib.parse import urlsplit

from benchmarks.over_http import bench, cpu_s, resident_bytes, served


CHARTS = "/console/api/metrics/history?total=true&step=20&limit=200"
TAIL = "/console/api/event-types/{name}/events?batch_flush_timeout=1&events_per_second_limit=200"
WHOLE_TAIL = "/console/api/event-types/{name}/events?batch_flush_timeout=1&batch_limit=200"
"""The interval at which the scripts of the pages send requests."""
CHARTS_EVERY_S = 10.0
TIMEOUT_S = 60
LOAD = ("--connections", "4", "--batch", "10")
NAME = "bench.console"


def overview(url: str, ended: threading.Event, begin_s: float) -> None:
    """Ask for what charts show, from a time on, until the end."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    ended.wait(begin_s)
    while not ended.is_set():
        connection.request("GET", CHARTS)
        connection.getresponse().read()
        ended.wait(CHARTS_EVERY_S)
    connection.close()


def live_view(url: str, ended: threading.Event, _begin_s: float, tail: str = TAIL) -> None:
    """Read the events of an event type as they come, until the end."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S)
    connection.request("GET", tail.format(name=NAME), headers={"Accept": "text/event-stream"})
    answer = connection.getresponse()
    while not ended.is_set() and answer.readline():
        pass
    connection.close()


@contextlib.contextmanager
def opened(url: str, count: int, run: Callable[[str, threading.Event, float], None]) -> Iterator[None]:
    """Keep consoles open; they begin one after the other."""
    ended = threading.Event()
    threads = [
        threading.Thread(target=run, args=(url, ended, CHARTS_EVERY_S * number / count)) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    try:
        ended.wait(CHARTS_EVERY_S if run is overview and count else 1)
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def measured(url: str, seconds: float) -> dict[str, float]:
    """The figures of a server: at rest, and while it is published to."""
    begin, begin_s = cpu_s(url), time.perf_counter()
    time.sleep(seconds)
    rest = 100 * (cpu_s(url) - begin) / (time.perf_counter() - begin_s)
    begin = cpu_s(url)
    load = bench(url, "publish", "--event-type", NAME, "--seconds", str(seconds), *LOAD)
    return {
        "CPU while nothing is published, % of a core": rest,
        "memory of the workers, MB": resident_bytes(url) / 1e6,
        "events published per second": load["events_per_s"],
        "CPU of the workers for an event, us": 1e6 * (cpu_s(url) - begin) / load["events"],
        "publishing p50, ms": load["p50_ms"],
        "publishing p99, ms": load["p99_ms"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--overviews", type=int, default=50)
    parser.add_argument("--live-views", type=int, nargs="*", default=(1, 5))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    options = parser.parse_args()
    columns = {
        "none": (0, overview),
        f"{options.overviews} overviews": (options.overviews, overview),
        **{f"{count} live": (count, live_view) for count in options.live_views},
        "1 whole": (1, partial(live_view, tail=WHOLE_TAIL)),
    }
    rows: dict[str, dict[str, list[float]]] = {}
    with served(2) as url:
        bench(url, "publish", "--event-type", NAME, "--seconds", "2", *LOAD)
        for _ in range(options.rounds):
            for column, (count, run) in columns.items():
                with opened(url, count, run):
                    for name, figure in measured(url, options.seconds).items():
                        rows.setdefault(name, {}).setdefault(column, []).append(figure)
    print(f"{'open consoles':<46}" + "".join(f"{column:>16}" for column in columns))
    for name, by_column in rows.items():
        print(f"{name:<46}" + "".join(f"{statistics.median(by_column[column]):>16,.1f}" for column in columns))


if __name__ == "__main__":
    main()
