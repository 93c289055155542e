"""Writes the metrics of an hour of a shop, for pictures and for tests of charts."""

import contextlib
from collections.abc import Iterator, Sequence
from math import sin
from pathlib import Path
from random import Random

from rioni.http.metrics.history_table import EVERY_S, SAMPLES, HistoryTable, Series
from rioni.storage.embedded.coordination.workers import FileLeadership
from tests.support.server import RunningServer, running_server


PARTITIONS = 4


@contextlib.contextmanager
def server_without_samples(data: Path) -> Iterator[RunningServer]:
    """Run a broker that adds nothing to the history of metrics, since this process is elected to do that."""
    with running_server(data, "--workers", "1"):
        pass  # It makes the folder.
    leadership = FileLeadership(data / "scratch/elected")
    if not leadership.held():
        raise RuntimeError("another process writes the history of metrics")
    with contextlib.closing(leadership), running_server(data, "--workers", "1") as running:
        yield running


def write_history(folder: Path, now_ms: int, busiest: Sequence[str], subscriptions: Sequence[str]) -> None:
    """Write what the broker would have sampled in the hour before, had the shop been open.

    Args:
        folder: of the node's metrics.
        now_ms: the end.
        busiest: event types; each has half of the traffic of the one before.
        subscriptions: the first one lags, in the partitions of the first of these event types, and catches up.
    """
    table, random = HistoryTable(folder), Random(17)
    for number in range(SAMPLES):
        part = number / SAMPLES
        load = 260 + 90 * sin(9 * part) + (400 if 0.62 < part < 0.68 else 0)
        lag = max(0.0, 5_200 * (part - 0.62) if part < 0.7 else 416 - 853 * (part - 0.7))
        row: dict[Series, float] = {}
        for rank, name in enumerate(busiest):
            events = load * random.uniform(0.9, 1.1) / 2 ** (rank + 1)
            row[Series("published_events", "event_type", name)] = events
            row[Series("published_bytes", "event_type", name)] = 212 * events
        published = sum(row.values())
        row |= {Series("published_events"): published / 213, Series("published_bytes"): published / 213 * 212}
        row[Series("streamed_events")] = 1.7 * load * random.uniform(0.92, 1.08)
        row[Series("requests")] = load / 3 * random.uniform(0.95, 1.05)
        row[Series("client_errors")] = 1.5 + 2 * random.random()
        row[Series("server_errors")] = 6 * random.random() if 0.62 < part < 0.66 else 0.0
        row[Series("publish_seconds", "quantile", "0.5")] = 0.0022 * random.uniform(0.95, 1.1)
        row[Series("publish_seconds", "quantile", "0.99")] = 0.009 * random.uniform(0.9, 1.3)
        for rank, name in enumerate(subscriptions):
            row[Series("lag_events", "subscription", name)] = round(lag / (rank + 1))
            row[Series("lag_seconds", "subscription", name)] = round(lag / 4)
        for partition in range(PARTITIONS if subscriptions else 0):
            value = f"{subscriptions[0]}/{busiest[0]}/{partition}"
            row[Series("partition_lag_events", "partition", value)] = round(lag / 4)
            row[Series("partition_lag_seconds", "partition", value)] = round(lag / (partition + 4))
        row |= {Series("lag_events"): round(1.5 * lag), Series("lag_seconds"): round(lag / 4)}
        table.write(now_ms - 1_000 * EVERY_S * (SAMPLES - number), row)
