"""Reports of a worker on itself and its node: lags, samples of metrics, rebuilds, and its own state."""

import os
import socket
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Protocol

from rioni import __version__
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.lag_monitor import LagMonitor
from rioni.domain.ports.host import Leadership
from rioni.domain.subscriptions.lag import FollowedPartitions, Lag, SubscribedPartition
from rioni.domain.system.reports import WorkerReport, encoded
from rioni.http.metrics.collectors import Metrics, total
from rioni.http.metrics.history_table import EVERY_S
from rioni.http.metrics.sampler import Sampler
from rioni.installation.infrastructure import Infrastructure
from rioni.projections.generations.rebuilds import running


# --- Has one worker of a node keep the lags of all subscriptions up to date, for the metrics of all ---

TICK_S = 0.25
LOOK_TICKS, CLUSTER_LOOK_TICKS = 3, 2
"""How many ticks there are from one look to the next: in a cluster an append on another node is known two ticks later,
and the metrics should show it within a second."""


class _TopicNews(Protocol):
    def exchange(self, topics: Collection[str]) -> Collection[str] | None: ...

    def close(self) -> None: ...


class _NoOtherNodes:
    def exchange(self, topics: Collection[str]) -> Collection[str] | None:  # noqa: ARG002 - there is nobody to tell
        return ()

    def close(self) -> None: ...


class Lags:
    """The part of one worker: it looks if no other worker of the node does."""

    def __init__(self, base: Infrastructure, metrics: Metrics, elected: Leadership) -> None:
        self._base, self._metrics, self._elected = base, metrics, elected
        self._runner = LoggedJobRunner()
        registry, adapters = base.registry, base.adapters
        self._monitor = LagMonitor(
            registry, adapters.stores, adapters.coordinator, base.directory.changes, base.clock, partial(time.sleep, 0)
        )
        self._news = _topic_news(base)
        self._followed = FollowedPartitions()
        self._in_touch = False
        """Whether the topics that other nodes have appended to are known."""
        self._ticks = 0
        metrics.lags.label_by(registry.subscription, base.clock)

    def tick(self) -> None:
        """Check changed subscriptions, if this worker is the one that does; failures are logged. Blocks on servers.

        Call it every `TICK_S`.
        """
        if not self._elected.held():
            return
        self._runner.run("gathering what has changed", self._monitor.gather)
        self._in_touch = False
        self._runner.run("exchanging which topics were appended to", self._exchange)
        self._ticks += 1
        if self._ticks % (CLUSTER_LOOK_TICKS if self._base.config.clustered else LOOK_TICKS) == 0:
            self._runner.run("looking at lags", self._look)

    def of_partitions(self) -> Mapping[SubscribedPartition, Lag]:
        """The lags of the partitions whose history is kept, if this worker is the one that looks. Never blocks."""
        return self._followed.lags(self._monitor.lagging, self._monitor.lags)

    def close(self) -> None:
        """Close the connection to the other nodes."""
        self._news.close()

    def _exchange(self) -> None:
        appended = self._news.exchange(self._monitor.take_appended())
        if appended is None:
            self._monitor.look_at_all()
        else:
            self._monitor.note_appended(appended)
        self._in_touch = True

    def _look(self) -> None:
        monitor, lags, clock = self._monitor, self._metrics.lags, self._base.clock
        monitor.look()
        if monitor.ready:
            as_of_ms = monitor.as_of_ms if self._in_touch else lags.read().as_of_ms
            lags.write(monitor.lags, monitor.events, as_of_ms, clock.monotonic())


def _topic_news(base: Infrastructure) -> _TopicNews:
    if not base.config.clustered or base.log.engine.dialect.name != "postgresql":
        return _NoOtherNodes()
    # PERF: as for the tracker of client activity.
    from rioni.storage.sql.topic_news import PostgresTopicNews  # noqa: PLC0415

    return PostgresTopicNews(base.log.engine)


# --- Has one worker of a node take samples of the metrics of all of them, for charts ---


class MetricsHistory:
    """Takes a sample every ten seconds, if this worker is the one of its node that does; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics, elected: Leadership, lags: Lags) -> None:
        self._clock, self._metrics, self._elected = base.clock, metrics, elected
        self._sampler = Sampler(metrics, lags.of_partitions)
        self._runner, self._pool = LoggedJobRunner(), base.pools.files
        self._due_at_s = float("-inf")

    def tick(self) -> None:
        """Take a sample, if it is time to. Blocks on the files of the metrics."""
        now_s = self._clock.monotonic()
        if now_s >= self._due_at_s and self._elected.held():
            # Samples keep their rhythm, unless the last one was due long ago.
            self._due_at_s = max(self._due_at_s + EVERY_S, now_s + EVERY_S / 2)
            self._runner.run("taking samples of metrics", self._sample)

    def _sample(self) -> None:
        now_ms = self._clock.now_ms()
        values = self._pool(self._sampler.sample, now_ms, self._clock.monotonic())
        self._pool(self._metrics.history.write, now_ms, values)


# --- Shows the progress of a rebuild in the metrics of the leader ---

REBUILDS_EVERY_S = 5.0


class RebuildGauges:
    """Reads the record of the running rebuild every few seconds; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics) -> None:
        self._base, self._metrics, self._runner = base, metrics, LoggedJobRunner()
        self._due_at_s = base.clock.monotonic()

    def tick(self) -> None:
        """Set the gauges, if it is time to; blocks on the database."""
        if self._base.clock.monotonic() >= self._due_at_s:
            self._due_at_s = self._base.clock.monotonic() + REBUILDS_EVERY_S
            self._runner.run("reading the progress of rebuilds", self._set)

    def _set(self) -> None:
        found = None
        if self._base.adapters.leadership.held():
            found = self._base.pools.database(self._base.read, running)
        self._metrics.rebuild_running.set(found is not None)
        self._metrics.rebuild_phase_ratio.set(0 if found is None else found.done / max(1, found.total))


# --- Has a worker report about itself to the others, for `GET /nodes` ---


class WorkerReporter:
    """Publishes the state of this process through the coordinator; failures are logged."""

    def __init__(self, base: Infrastructure, metrics: Metrics) -> None:
        self._base, self._metrics = base, metrics
        self._started_ms, self._at_s = base.clock.now_ms(), base.clock.monotonic()
        self._requests = total(metrics.requests)
        self._runner = LoggedJobRunner()

    def report(self, number: int, port: int) -> None:
        """Tell the others; call it every `EVERY_S` of `rioni.domain.system.reports`. Blocks on the coordinator.

        Args:
            number: the number of this worker among those of its node.
            port: the port at which the node is served.
        """
        self._runner.run("telling other workers about this one", lambda: self._tell(number, port))

    def _tell(self, number: int, port: int) -> None:
        base, metrics = self._base, self._metrics
        before, before_s = self._requests, self._at_s
        self._requests, self._at_s = total(metrics.requests), base.clock.monotonic()
        report = WorkerReport(
            node=base.directory.broker,
            host=socket.gethostname(),
            port=port,
            version=__version__,
            workers=base.config.workers,
            number=number,
            pid=os.getpid(),
            started_ms=self._started_ms,
            reported_ms=base.clock.now_ms(),
            log_position=base.registry.position,
            connections=int(total(metrics.connections)),
            streams=int(total(metrics.streams)),
            requests_per_s=round((self._requests - before) / max(self._at_s - before_s, 1.0), 3),
        )
        base.adapters.coordinator.announce(encoded(report))
