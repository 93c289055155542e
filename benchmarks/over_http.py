"""Publishing and consuming over HTTP beside the event store alone, in one run: `python benchmarks/over_http.py`.

Each round measures the store alone (gevent, native threads for the disk, as in production) and then the server over
HTTP with the same batches and as many publishers; a ratio is taken within a round, so that it holds while the speed of
the machine drifts. Client, server and disk share the machine.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from rioni.cli.broker.bench import PARTITIONS


ROOT = Path(__file__).parents[1]
EVENT_STORE = Path(__file__).with_name("event_store.py")
BATCH, SIZE = 100, 200
CONSUMED_BATCH = 500
"""The events of a batch when consuming, as `rioni bench` asks for them."""


@contextlib.contextmanager
def server(workers: int, data: Path | None = None) -> Iterator[tuple[str, float]]:
    """A fresh server; its URL, and the seconds from its start to its first answer."""
    begin = time.perf_counter()
    with served(workers, data=data) as url:
        yield url, time.perf_counter() - begin


@contextlib.contextmanager
def served(
    workers: int,
    *,
    data: Path | None = None,
    source: Path = ROOT,
    application: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """The URL of a fresh server that answers.

    Args:
        workers: how many processes.
        data: its data directory; a temporary one by default.
        source: the folder with the sources of the broker.
        application: `module:name` of an application for gunicorn instead of the broker.
        environment: what is added to that of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rioni", "serve", "--port", "0", "--data", str(data or f"{folder}/data")]
        if application:
            command = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", "127.0.0.1:0", application]
        log = Path(folder, "log")
        with log.open("w") as file:
            environment = os.environ | {"PYTHONPATH": str(source)} | dict(environment or {})
            command += ["--workers", str(workers)]
            process = subprocess.Popen(command, stderr=file, cwd=source, env=environment)
        while not (found := re.search(r"http://[\d.:]+", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.001)
        url = found[0]
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(f"{url}/health"):
            pass
        _arbiters[url] = process.pid
        try:
            yield url
        finally:
            process.terminate()
            process.wait()


_arbiters: dict[str, int] = {}
"""The process of each server, by its URL."""


def _workers(url: str) -> list[int]:
    pid = _arbiters[url]
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def cpu_s(url: str) -> float:
    """Seconds of CPU that the workers of a server have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in _workers(url)]
    return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")


def resident_bytes(url: str) -> int:
    """Memory of the workers of a server; pages that they share count for each."""
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in _workers(url)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes(url: str) -> int:
    """The most memory that the workers of a server have taken since they started."""
    lines = [line.split() for pid in _workers(url) for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(1024 * int(line[1]) for line in lines if line and line[0] == "VmHWM:")


def bench(url: str, *options: str) -> dict:
    """The figures of `rioni bench`, errors included."""
    done = subprocess.run(
        [sys.executable, "-m", "rioni", "bench", *options, "--url", url, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout)


def consumed(url: str, published: int, seconds: float, *options: str) -> dict:
    """The figures of consuming what `bench` has published.

    Not the last batch of each partition: that waits until it is full, or its time is over.
    """
    events = published - PARTITIONS * CONSUMED_BATCH
    return bench(url, "consume", "--seconds", str(seconds), "--events", str(events), *options)


def appended_alone(publishers: list[int], seconds: float, *options: str) -> tuple[dict[int, float], str]:
    """Events appended per second by number of publishers, in one process, and all that `event_store.py` says."""
    numbers = list(map(str, publishers))
    command = [sys.executable, str(EVENT_STORE), "--gevent", "--seconds", str(seconds), "--publishers", *numbers]
    said = subprocess.run([*command, *options], capture_output=True, text=True, check=True).stdout
    appended = re.findall(r"append  1 process\(es\) x +(\d+) publishers: +([\d,]+)", said)
    return {int(count): _number(rate) for count, rate in appended}, said


def store_alone(publishers: list[int], seconds: float) -> tuple[dict[int, float], float]:
    """Events appended per second by number of publishers, in one process, and events read per second from disk."""
    appended, said = appended_alone(publishers, seconds)
    (read,) = re.findall(r"read +from disk +1,000,000 bytes a call: +([\d,]+)", said)
    return appended, _number(read)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each figure")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    rows: dict[str, list[tuple[float, float, float, float]]] = {}
    starts, seconds = [], str(options.seconds)
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        alone, read = store_alone(options.connections, options.seconds / 2)
        with server(options.workers) as (url, start):
            starts.append(start)
            published = 0
            for count in options.connections:
                sizes = ("--connections", str(count), "--batch", str(BATCH), "--size", str(SIZE))
                found = bench(url, "publish", *sizes, "--seconds", seconds)
                row = (found["events_per_s"], alone[count], found["p50_ms"], found["p99_ms"])
                rows.setdefault(f"publish, {count} connections", []).append(row)
                published += found["events"]
            found = consumed(url, published, options.seconds * 3)
            rows.setdefault("consume, 1 stream", []).append(
                (found["events_per_s"], read, found["p50_ms"], found["p99_ms"])
            )
    print(f"{options.workers} workers, {os.cpu_count()} cores, {BATCH} events of {SIZE} bytes a batch; medians")
    print(f"{'':<24} {'over HTTP':>12} {'store alone':>12} {'ratio':>7} {'p50 ms':>8} {'p99 ms':>8}")
    for name, found_rows in rows.items():
        rate, limit, p50, p99 = (statistics.median(column) for column in zip(*found_rows, strict=True))
        ratio = statistics.median(over / raw for over, raw, *_ in found_rows)
        print(f"{name:<24} {rate:>12,.0f} {limit:>12,.0f} {ratio:>7.0%} {p50:>8.2f} {p99:>8.2f}")
    print(f"start to first answer of /health: {statistics.median(starts):.2f} s")


if __name__ == "__main__":
    main()
