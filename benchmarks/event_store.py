"""Measures the embedded event store: `python benchmarks/event_store.py --both`."""

import sys
from pathlib import Path

import gevent
from gevent import monkey


sys.path.insert(0, str(Path(__file__).parents[1]))
if __name__ == "__main__" and "--gevent" in sys.argv:
    monkey.patch_all()

import argparse
import multiprocessing
import os
import queue
import subprocess
import tempfile
import threading
import time

from rioni.domain.ports.host import StorePools, direct
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.events.event_store import EmbeddedEventStore
from rioni.storage.embedded.signals import EmbeddedSignals


EVENTS = 100
TOPIC = "benchmark"
PARTITIONS = 8


def batch_of(size: int) -> list[bytes]:
    """A batch of events of this size."""
    return [b'{"metadata":{"eid":"%032d"},"padding":"%s"}' % (n, b"x" * (size - 68)) for n in range(EVENTS)]


def open_store(path: Path, *, patched: bool):
    run_in_pool = direct
    if patched:
        pool = gevent.get_hub().threadpool

        def run_in_pool(function, *args, **kwargs):
            return pool.apply(function, args, kwargs)

    signals_path = path / "signals"
    signals_path.mkdir(exist_ok=True)
    signals = EmbeddedSignals(signals_path)
    return EmbeddedEventStore(
        path / "events.db", clock=SystemClock(), signals=signals, pools=StorePools.all(run_in_pool)
    ), signals


def publish(path: Path, publishers: int, seconds: float, size: int, patched: bool, results) -> None:
    batch = batch_of(size)
    store, signals = open_store(path, patched=patched)
    waits: list[float] = []
    stop = time.perf_counter() + seconds

    def one(number: int) -> None:
        while (begin := time.perf_counter()) < stop:
            store.append(TOPIC, {number % PARTITIONS: batch})
            waits.append(time.perf_counter() - begin)

    begin = time.perf_counter()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begin
    waits.sort()
    store.close()
    signals.close()
    results.put((len(waits) * EVENTS / taken, waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]))


def measure_append(publishers: int, processes: int, seconds: float, size: int, patched: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        store, signals = open_store(path, patched=patched)
        store.create_topic(TOPIC, PARTITIONS)
        store.close()
        signals.close()
        if processes == 1:
            results = queue.Queue()
            publish(path, publishers, seconds, size, patched, results)
            found = [results.get()]
        else:
            context = multiprocessing.get_context("fork")
            results = context.SimpleQueue()
            children = [
                context.Process(target=publish, args=(path, publishers, seconds, size, patched, results))
                for _ in range(processes)
            ]
            for child in children:
                child.start()
            for child in children:
                child.join()
            found = [results.get() for _ in children]
        total = sum(rate for rate, *_ in found)
        p50, p99, worst = (max(values) * 1000 for values in list(zip(*found, strict=True))[1:])
        shares = "" if processes == 1 else "  shares " + " ".join(f"{rate / total:.0%}" for rate, *_ in found)
        print(
            f"append  {processes} process(es) x {publishers:2} publishers: {total:9,.0f} events/s  "
            f"p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  max {worst:6.1f} ms{shares}"
        )


def measure_read(size: int, patched: bool) -> None:
    batch = batch_of(size)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        store, signals = open_store(path, patched=patched)
        store.create_topic(TOPIC, PARTITIONS)
        for _ in range(250):
            store.append(TOPIC, dict.fromkeys(range(PARTITIONS), batch))
        store.close()
        events = 250 * PARTITIONS * EVENTS
        stored = sum(file.stat().st_size for file in path.iterdir() if file.name.startswith("events.db"))
        print(f"size    {stored / events:.1f} bytes per event of {size} bytes")
        for bytes_max in (20_000, 1_000_000):
            store, signals = open_store(path, patched=patched)
            for name in ("disk", "memory"):
                read, begin = 0, time.perf_counter()
                for partition in range(PARTITIONS):
                    position = 0
                    while chunks := store.read(TOPIC, partition, position, bytes_max):
                        read += sum(len(chunk.ends) for chunk in chunks)
                        position = chunks[-1].next
                rate = read / (time.perf_counter() - begin)
                print(f"read    from {name:6} {bytes_max:9,} bytes a call: {rate:12,.0f} events/s")
            begin = time.perf_counter()
            for _ in range(2000):
                store.bounds(TOPIC)
            print(f"bounds  of {PARTITIONS} partitions: {(time.perf_counter() - begin) / 2000 * 1e6:.1f} us")
            store.close()
            signals.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    parser.add_argument("--gevent", action="store_true", help="patched, the disk in native threads, as in production")
    parser.add_argument("--both", action="store_true", help="first without, then with gevent")
    parser.add_argument("--publishers", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--size", type=int, default=200, help="bytes of an event")
    parser.add_argument("--append-only", action="store_true", help="read nothing, and append from one process only")
    options = parser.parse_args()
    if options.both:
        arguments = [f"--seconds={options.seconds}", f"--size={options.size}"]
        subprocess.run([sys.executable, __file__, *arguments], check=True)
        subprocess.run([sys.executable, __file__, *arguments, "--gevent"], check=True)
        return
    print(f"--- {'gevent, native threads for the disk' if options.gevent else 'threads'}, {os.cpu_count()} cores")
    sys.setswitchinterval(0.0005)
    for processes in (1,) if options.append_only else (1, 2):
        for publishers in options.publishers:
            measure_append(publishers, processes, options.seconds, options.size, options.gevent)
    if not options.append_only:
        measure_read(options.size, options.gevent)


if __name__ == "__main__":
    main()
