"""Runs of `rioni bench`: their options, and the figures that they report."""

import time
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rioni.cli.connections import completions


if TYPE_CHECKING:
    from rich.console import Console


# --- The options, which are those of the commands ---

Seconds = Annotated[float, typer.Option(min=0.1, max=3_600, help="How long to measure.")]


@dataclass(frozen=True)
class Publish:
    """The options of a run that publishes."""

    event_type: Annotated[str | None, typer.Option(help="Made if missing. [default: rioni-bench.<category>]")] = None
    category: Annotated[Literal["business", "data", "undefined"], typer.Option(help="Category of the event type.")] = (
        "business"
    )
    connections: Annotated[
        int, typer.Option(min=1, max=1_000, help="Connections, each with one request at a time.")
    ] = 8
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one request.")] = 100
    size: Annotated[int, typer.Option(min=0, max=900_000, help="Bytes of one event, at least what metadata needs.")] = (
        200
    )
    seconds: Seconds = 10
    requests: Annotated[int | None, typer.Option(min=1, help="Stop after this many requests.")] = None
    idempotency_keys: Annotated[
        bool, typer.Option("--idempotency-keys", help="Send an idempotency key with each request.")
    ] = False

    @property
    def name(self) -> str:
        """The name of the event type."""
        return self.event_type or f"rioni-bench.{self.category}"

    def begin(self) -> "Report":
        """Begin to measure."""
        return Report("published", "requests")


@dataclass(frozen=True)
class Consume:
    """The options of a run that consumes; each stream has a second connection for its commits."""

    event_type: Annotated[str, typer.Option(help="An existing event type.", autocompletion=completions.event_types)] = (
        "rioni-bench.business"
    )
    connections: Annotated[int, typer.Option(min=1, max=1_000, help="Streams of the subscription.")] = 1
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Events in one batch at most.")] = 500
    window: Annotated[int, typer.Option(min=1, help="Events of a stream that may be uncommitted.")] = 50_000
    read_from: Annotated[Literal["begin", "end"], typer.Option(help="Start position of the new subscription.")] = (
        "begin"
    )
    seconds: Seconds = 10
    events: Annotated[int | None, typer.Option(min=1, help="Stop after this many events.")] = None

    def begin(self) -> "Report":
        """Begin to measure."""
        return Report("consumed", "commits")


# --- The results: rates, latencies and errors, for people and for scripts ---


BAR_WIDTH = 40
BUCKETS = 8
PROBLEM_BYTES_MAX = 500
OK_STATUSES = range(200, 300)


class Report:
    """The measurements of a run."""

    def __init__(self, what: str, measured: str) -> None:
        """Begin the measurement.

        Args:
            what: was done with the events, such as `published`.
            measured: the request whose latencies are collected.
        """
        self.what, self.measured = what, measured
        self.events = 0
        self.bytes = 0
        self.latencies_s: list[float] = []
        self.statuses: Counter[int] = Counter()
        self.problem = ""
        self._begun = 0
        self.started_s = self.ended_s = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the last event."""
        return max(self.ended_s - self.started_s, 1e-6)

    @staticmethod
    def is_success(status: int) -> bool:
        """Whether this is the status of an answer that is no error."""
        return status in OK_STATUSES

    @property
    def failed(self) -> bool:
        """Whether a request was answered with an error, or had no answer."""
        return any(status not in OK_STATUSES for status in self.statuses)

    def take_turn(self, requests_max: int | None) -> bool:
        """Count a request that is about to be sent; return False if that would be one too many."""
        if requests_max is not None and self._begun >= requests_max:
            return False
        self._begun += 1
        return True

    def add_events(self, count: int, size: int) -> None:
        """Count events and their bytes as they were sent."""
        self.events += count
        self.bytes += size
        self.ended_s = time.monotonic()

    def add_answer(self, status: int, body: bytes, sent_s: float) -> None:
        """Count an answer; the first one that is an error is kept to be shown."""
        self.statuses[status] += 1
        if status in OK_STATUSES:
            self.latencies_s.append(time.monotonic() - sent_s)
        elif not self.problem:
            self.problem = body[:PROBLEM_BYTES_MAX].decode(errors="replace") if status else "the connection broke"

    def quantile_ms(self, share: float) -> float:
        """The latency that this share of the answered requests stayed within."""
        ordered = sorted(self.latencies_s)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] * 1_000 if ordered else 0.0

    def json(self) -> str:
        """The figures for scripts."""
        figures = {
            "events": self.events,
            "seconds": round(self.seconds, 6),
            "events_per_s": round(self.events / self.seconds, 1),
            "bytes_per_s": round(self.bytes / self.seconds),
            "requests": sum(self.statuses.values()),
            "p50_ms": round(self.quantile_ms(0.5), 3),
            "p99_ms": round(self.quantile_ms(0.99), 3),
            "max_ms": round(self.quantile_ms(1), 3),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "problem": self.problem,
        }
        import orjson

        return orjson.dumps(figures).decode()

    def show(self, console: "Console") -> None:
        """The figures for people."""
        rate, mb = self.events / self.seconds, self.bytes / self.seconds / 1e6
        console.print(
            f"{self.events:,} events {self.what} in {self.seconds:.2f} s: {rate:,.0f} events/s, {mb:,.1f} MB/s"
        )
        if self.latencies_s:
            p50, p99, longest = (self.quantile_ms(share) for share in (0.5, 0.99, 1))
            console.print(
                f"{len(self.latencies_s):,} {self.measured}: p50 {p50:.2f}, p99 {p99:.2f}, max {longest:.2f} ms"
            )
            for low, high, count in _histogram([latency * 1_000 for latency in self.latencies_s]):
                bar = "█" * round(BAR_WIDTH * count / len(self.latencies_s))
                console.print(f"  {low:>8.2f} - {high:>8.2f} ms  {bar:<{BAR_WIDTH}} {count:>9,}")
        for status, count in sorted(self.statuses.items()):
            if status not in OK_STATUSES:
                console.print(f"{count:,} requests {f'answered {status}' if status else 'without an answer'}")
        if self.problem:
            console.print(f"The first of them: {self.problem}")


def _histogram(values: list[float]) -> list[tuple[float, float, int]]:
    """Counts in buckets whose upper bounds double up to the largest value, empty ones at the fast end left out."""
    uppers = [max(values) / 2**power for power in reversed(range(BUCKETS))]
    counted = Counter(bisect_left(uppers, value) for value in values)
    rows = list(zip([0.0, *uppers], uppers, (counted[number] for number in range(BUCKETS)), strict=False))
    return rows[min(counted) :]
