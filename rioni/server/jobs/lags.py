"""Has one worker of a node keep the lags of all subscriptions up to date, for the metrics of all."""

import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import Protocol

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.lag_monitor import LagMonitor
from rioni.domain.ports.leadership import Leadership
from rioni.domain.subscriptions.followed_partitions import FollowedPartitions, SubscribedPartition
from rioni.domain.subscriptions.lag import Lag
from rioni.http.metrics.collectors import Metrics
from rioni.installation.infrastructure import Infrastructure


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
        """Whether what other nodes have appended to is known."""
        self._ticks = 0
        metrics.lags.label_by(registry.subscription, base.clock)

    def tick(self) -> None:
        """Look at what has changed, if this worker is the one that does; failures are logged. Blocks on servers.

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
