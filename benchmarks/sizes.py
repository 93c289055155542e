"""Measures by size the memory of a worker, its start, changes, and a rebuild: `python -m benchmarks.sizes`.

It measures one worker with more and more event types and subscriptions, rebuilds longer and longer logs, opens more
and more streams, and loads a worker in several ways; it prints all of it, and draws it in `docs/_static/sizes.svg`. It
needs matplotlib, in the dependency group `benchmark`, and stops by itself after about ten minutes.
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib import rcParams
from matplotlib.figure import Figure

from benchmarks.over_http import ROOT, bench, peak_bytes, resident_bytes, served
from benchmarks.rebuild import rebuilt, write_log
from benchmarks.scale import create_all
from benchmarks.streams import SETTINGS, Streams, commits, create_event_type
from rioni.cli.broker.load_client import LoadTarget, Loop


EVENT_TYPES = (10, 100, 1_000, 10_000)
ENTRIES = (10_000, 100_000, 1_000_000)
STREAMS = (100, 1_000, 9_800)
CHART = ROOT / "docs" / "_static" / "sizes.svg"

Figures = Mapping[int, float]
"""By size."""


def with_event_types(count: int) -> tuple[float, float, float]:
    """The changes a second that create them, the start with them in seconds, and the memory of a worker in MB."""
    with tempfile.TemporaryDirectory() as folder:
        with served(1, data=Path(folder)) as url:
            rate = create_all(url, range(count))
        begin_s = time.perf_counter()
        with served(1, data=Path(folder)) as url:
            return rate, time.perf_counter() - begin_s, resident_bytes(url) / 1e6


def with_entries(count: int) -> float:
    """The seconds of a rebuild from a log of this length, with the start of Spark."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/registry.db"
        write_log(url, count)
        return rebuilt(url, Path(folder), dry_run=False)[0].seconds


def with_streams(count: int) -> float:
    """The memory in MB that idle streams add to a worker."""
    with served(1) as url, contextlib.closing(Loop()) as loop:
        create_event_type(url, "idle")
        before, streams = resident_bytes(url), Streams(LoadTarget(url), loop, "idle", count)
        streams.open()
        return (resident_bytes(url) - before) / 1e6


def under_load(load: Callable[[str], object]) -> float:
    """The most memory in MB that a worker takes under a load, above that of its start."""
    with served(1) as url:
        before = resident_bytes(url)
        load(url)
        return (peak_bytes(url) - before) / 1e6


def loads(seconds: float) -> Mapping[str, Callable[[str], object]]:
    """The loads of one worker, by name."""
    for_long = ("--seconds", str(seconds))

    def consume(url: str) -> None:
        bench(url, "publish", "--connections", "8", *for_long)
        bench(url, "consume", *for_long)

    return {
        "publish 1 event": lambda url: bench(url, "publish", "--connections", "32", "--batch", "1", *for_long),
        "publish 100 events": lambda url: bench(url, "publish", "--connections", "32", *for_long),
        "publish and consume": consume,
        "commit": lambda url: commits(url, seconds),
    }


def draw(panels: Sequence[tuple[str, str, Figures]], loaded: Mapping[str, float]) -> None:
    """Write the chart."""
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "rioni", "font.family": "sans-serif", "font.size": 9})
    figure = Figure((9.6, 5.6), layout="constrained")
    places = figure.subplots(2, 3).flat
    for place, (title, size, figures) in zip(places, panels, strict=False):
        place.plot(list(figures), list(figures.values()), marker="o")
        place.set(title=title, xlabel=size, xscale="log", ylim=(0, 1.15 * max(figures.values())))
        place.grid(alpha=0.3)
    last = figure.axes[-1]
    bars = last.barh(list(loaded), list(loaded.values()))
    last.bar_label(bars, fmt="%.0f", padding=3)
    last.set(title="Memory under load, MB", xlim=(0, 1.25 * max(loaded.values())))
    figure.savefig(CHART, metadata={"Date": None})


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    options = parser.parse_args()
    os.environ.update(SETTINGS)

    def measured(name: str, measure: Callable[[], float]) -> float:
        figure = measure()
        print(f"{name:<44} {figure:>10,.1f}", flush=True)
        return figure

    event_types = {count: with_event_types(count) for count in EVENT_TYPES}
    starts, memory, rates = {}, {}, {}
    for count, (rate, start_s, megabytes) in event_types.items():
        print(f"{count:>10,} event types: {rate:>8,.0f} changes/s, start {start_s:.2f} s, worker {megabytes:,.0f} MB")
        rates[count], starts[count], memory[count] = rate, start_s, megabytes
    streams = {count: measured(f"{count:,} idle streams, MB", partial(with_streams, count)) for count in STREAMS}
    loaded = {name: measured(f"{name}, MB", partial(under_load, load)) for name, load in loads(options.seconds).items()}
    rebuilds = {count: measured(f"rebuild of {count:,} entries, s", partial(with_entries, count)) for count in ENTRIES}
    panels = [
        ("Start, s", "event types and subscriptions", starts),
        ("Memory of a worker, MB", "event types and subscriptions", memory),
        ("Changes a second", "event types and subscriptions", rates),
        ("Idle streams of a worker, MB", "streams", streams),
        ("Rebuild with Spark, s", "entries of the log", rebuilds),
    ]
    draw(panels, loaded)


if __name__ == "__main__":
    main()
