"""Publishing over HTTP by size of an event, category and connections, and where its time goes.

Run it with `python -m benchmarks.publishing`. All figures are of one run against one server; client, server and disk
share the machine. In the last table `HTTP` is the time of a request whose body the server reads and then refuses, since
the event type is blocked, `append` that of the event store alone; the other lines are those of `publish_pipeline`.
"""

import argparse
import os
import urllib.request

from benchmarks.over_http import BATCH, appended_alone, bench, server
from benchmarks.publish_pipeline import EVENTS, SIZES, phases


CATEGORIES = ("undefined", "business", "data")
CONNECTIONS = (1, 8, 32)
BLOCKED = "rioni-bench.blocked"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    seconds = str(options.seconds)
    with server(options.workers) as (url, _):
        _print_rates(url, seconds)
        _print_latencies(url, seconds)
        _print_phases(url, seconds)


def _print_rates(url: str, seconds: str) -> None:
    print(f"events/s published, batches of {BATCH}\n{'':<22}{''.join(f'{n:>10} conn.' for n in CONNECTIONS)}")
    for category in CATEGORIES:
        for size in SIZES:
            rates = [_publish(url, category, size, count, seconds)["events_per_s"] for count in CONNECTIONS]
            print(f"{category:<12}{size:>8,} B{''.join(f'{rate:>16,.0f}' for rate in rates)}")


def _print_latencies(url: str, seconds: str) -> None:
    print("\nms to publish a single event of 200 bytes\n                    p50     p99    events/s")
    for count in CONNECTIONS:
        found = _publish(url, "business", SIZES[0], count, seconds, batch=1)
        name = f"{count} connections"
        print(f"{name:<16}{found['p50_ms']:>7.2f} {found['p99_ms']:>7.2f} {found['events_per_s']:>11,.0f}")


def _print_phases(url: str, seconds: str) -> None:
    print(f"\nµs for a batch of {EVENTS} events, one connection\n{'':<30}{''.join(f'{size:>9,} B' for size in SIZES)}")
    columns = []
    for size in SIZES:
        column = phases(size, rounds=5)
        del column["partition, keys seen before"]
        alone, _ = appended_alone([1], float(seconds), "--append-only", f"--size={size}")
        column["append"] = 1e6 * EVENTS / alone[1]
        column["HTTP"] = _refused_us(url, size, seconds)
        column["the whole request"] = 1e3 * _publish(url, "business", size, 1, seconds)["p50_ms"]
        columns.append(column)
    for name in columns[0]:
        print(f"{name:<30}{''.join(f'{column[name]:>11.0f}' for column in columns)}")


def _refused_us(url: str, size: int, seconds: str) -> float:
    """Microseconds of a request that is read and refused."""
    name = f"{BLOCKED}.{size}"
    _publish(url, "business", size, 1, "0.1", event_type=name)
    blocked = urllib.request.Request(f"{url}/settings/blacklist/PRODUCER_ET/{name}", method="PUT")
    urllib.request.urlopen(blocked).close()
    return 1e6 / _publish(url, "business", size, 1, seconds, event_type=name)["requests"] * float(seconds)


def _publish(
    url: str, category: str, size: int, connections: int, seconds: str, *, batch: int = BATCH, event_type: str = ""
) -> dict:
    named = ("--event-type", event_type or f"rioni-bench.{category}", "--category", category)
    sizes = ("--connections", str(connections), "--batch", str(batch), "--size", str(size))
    return bench(url, "publish", *named, *sizes, "--seconds", seconds)


if __name__ == "__main__":
    main()
