"""Archives one event type: reads after the offsets of its table, and commits events together with the new offsets."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from rioni.client import Client, ClientError, EventType
from rioni.client.ranges import Bounds, Locator, Place
from rioni.domain.errors import Conflict, Invalid
from rioni.domain.event_types.event_type import PERIOD, PERIODS, is_period
from rioni.lake.event_tables import EventTables
from rioni.lake.reader import LakeReader, RowBuffer, event_type
from rioni.lake.table import Lake


# --- The metrics of an archive process, in Prometheus' terms ---


class ArchiveMetrics:
    """All metrics, by event type."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, about: str) -> Counter:
            return Counter(f"rioni_archive_{name}", about, ["event_type"], registry=self.registry)

        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"rioni_archive_{name}", about, ["event_type"], registry=self.registry)

        self.events = counter("events", "Events committed to tables")
        self.bytes = counter("bytes", "JSON of the events committed to tables, in bytes")
        self.quarantined = counter("quarantined_events", "Events that did not fit the columns of their table")
        self.lost = counter("lost_events", "Events that the retention time had removed before they were archived")
        self.errors = counter("errors", "Rounds that failed; the log contains the reasons")
        self.lag_events = gauge("lag_events", "Events in the broker that are not in the table yet")
        self.lag_seconds = gauge("lag_seconds", "Age of the oldest of these events, 0 if there is none")
        self.retention_seconds = gauge("retention_seconds", "Retention time of the event type in the broker")
        self.last_commit = gauge("last_commit_timestamp_seconds", "Time of the last commit to the table")

    def serve(self, host: str, port: int) -> int:
        """Serve the metrics over HTTP in a new thread, and return the port; OSError if it is in use."""
        server, _ = start_http_server(port, host, self.registry)
        return int(server.server_port)


# --- How long the annotation for the data lake asks to keep events there ---

_PERIOD = re.compile(r"([0-9]+) ?([dwmy])")
_DAYS = {"d": 1, "w": 7, "m": 31, "y": 366}


def kept_since(period: str | None, today: date) -> date | None:
    """The first day whose events are still to be kept; None for all days.

    Args:
        period: the annotation; a month counts as 31 days, a year as 366.
        today: in UTC.

    Raises:
        Invalid: it is none that this broker accepts; others may do so.
    """
    if period is not None and not is_period(period):
        raise Invalid(f"The annotation {PERIOD} is {period!r:.100}, but {PERIODS}.")
    found = _PERIOD.match(period or "")
    if found is None:
        return None
    return today - timedelta(days=int(found[1]) * _DAYS[found[2]])


_LOG = logging.getLogger("rioni.lake")


class CommitLimits(NamedTuple):
    """The limits at which events are committed, whichever comes first."""

    events: int = 100_000
    bytes: int = 32 << 20
    seconds: float = 300


class RoundResult(NamedTuple):
    """The result of a round."""

    archived: int = 0
    quarantined: int = 0
    lost: int = 0
    """Events that retention had removed before they were read."""


class EventTypeArchive:
    """Keeps the table of one event type up to date; not thread-safe."""

    def __init__(
        self,
        client: Client,
        lake: Lake,
        name: str,
        limits: CommitLimits,
        metrics: ArchiveMetrics,
        *,
        keeps_json: bool = False,
    ) -> None:
        self._client, self._lake, self._name = client, lake, name
        self._locator = Locator(client, name)
        self._limits, self._metrics, self._keeps_json = limits, metrics, keeps_json
        self.archived = 0
        """Events that were archived, also in rounds that have failed later."""
        self._complete_until: datetime | None = None
        """All events before this time are in the table; None if that is not known yet."""
        self._places: Mapping[str, Place] | None = None
        """The places of the table, after the last round without a failure."""
        self._identity: datetime | None = None
        """The identity of the event type that these places are of."""
        self._expired_on: date | None = None

    def archive(self, is_stopped: Callable[[], bool], progress: Callable[[int, int], object]) -> RoundResult:
        """Archive what the broker holds now; blocks until then, or until `is_stopped` and it has committed.

        Args:
            is_stopped: whether to end early.
            progress: called with the events that are in the lake, and how many there are to archive.

        Raises:
            ClientError: the broker can't be used.
            Unavailable: the lake can't be used.
            Conflict: the table is not one of this event type, or is ahead of the broker.
            WriterConflict: another process archives the event type, too.
        """
        now = datetime.now(UTC)
        found = event_type(self._client, self._name)
        partitions = self._locator.bounds()
        is_known = found.created_at == self._identity
        if is_known and self._is_complete(partitions) and self._expired_on == now.date():
            self._measure(found, partitions, now)
            return RoundResult()
        self._places = None
        tables = EventTables(self._lake, self._client, found, keeps_json=self._keeps_json)
        self._identity = found.created_at
        self._expire(tables, found, now.date())
        starts, lost = self._starts(found, partitions, tables.places, now)
        outcome = RoundResult(lost=lost)
        if lost:
            # Before anything else, so that no later run reports the same loss.
            tables.commit(RowBuffer(found.category, starts))
        self._places = starts
        lag = self._measure(found, partitions, now)
        progress(0, lag)
        behind = {name: starts[name] for name, each in partitions.items() if starts[name] < each.newest}
        reader = LakeReader(self._client, found, {name: each.newest for name, each in partitions.items()})
        while behind and not is_stopped():
            buffer = reader.read(behind, self._is_full, is_stopped)
            outcome = self._commit(tables, buffer, outcome)
            progress(outcome.archived + outcome.quarantined, lag)
            starts |= buffer.places
            behind = {name: starts[name] for name in behind if name not in buffer.ended}
        if not behind:
            self._complete_until = now
        self._measure(found, partitions, now)
        return outcome

    def _commit(self, tables: EventTables, buffer: RowBuffer, outcome: RoundResult) -> RoundResult:
        if buffer.expired:
            self._report_loss(buffer.expired)
        quarantined = 0
        if buffer.places:
            quarantined = tables.commit(buffer)
            self.archived += len(buffer.events) - quarantined
            self._metrics.events.labels(self._name).inc(len(buffer.events) - quarantined)
            self._metrics.quarantined.labels(self._name).inc(quarantined)
            self._metrics.bytes.labels(self._name).inc(buffer.bytes)
            self._metrics.last_commit.labels(self._name).set(time.time())
            self._complete_until = buffer.oldest
        return RoundResult(
            outcome.archived + len(buffer.events) - quarantined,
            outcome.quarantined + quarantined,
            outcome.lost + buffer.expired,
        )

    def _is_full(self, buffer: RowBuffer) -> bool:
        limits = self._limits
        return (
            len(buffer.events) >= limits.events
            or buffer.bytes >= limits.bytes
            or time.monotonic() - buffer.begun_s >= limits.seconds
        )

    def _is_complete(self, partitions: Mapping[str, Bounds]) -> bool:
        places = self._places
        return places is not None and all(places.get(name) == each.newest for name, each in partitions.items())

    # --- Retention ---

    def _starts(
        self,
        found: EventType,
        partitions: Mapping[str, Bounds],
        places: Mapping[str, Place],
        now: datetime,
    ) -> tuple[dict[str, Place], int]:
        """The place at which to read on in each partition, and how many events before that are lost."""
        starts, lost = {}, 0
        for name, each in partitions.items():
            archived = places.get(name)
            starts[name] = max(archived or each.before_oldest, each.before_oldest)
            if archived is None:
                continue
            if archived > max(each.newest, each.before_oldest):
                raise Conflict(
                    f"The table of {self._name} ends at {archived.offset} of partition {name}, the broker at "
                    f"{each.newest.offset}. Was the broker restored from a backup? Archive to another place."
                )
            if archived < each.before_oldest:
                lost += self._lost(found, name, archived, each.before_oldest, now)
        if lost:
            self._report_loss(lost)
        return starts, lost

    def _lost(self, found: EventType, partition: str, archived: Place, oldest: Place, now: datetime) -> int:
        try:
            return self._locator.distance(partition, archived, oldest)
        except ClientError:
            # The timeline of the last archived event is gone: how long it had been is unknown.
            retention_ms = found.options.retention_time
            if self._complete_until is None or retention_ms is None:
                return 1
            return int((now - self._complete_until).total_seconds() * 1_000 > retention_ms)

    def _report_loss(self, count: int) -> None:
        self._metrics.lost.labels(self._name).inc(count)
        _LOG.error(
            "%s: the broker has removed %d events or more before they were archived, since their retention time was "
            "over. Raise retention_time, or archive more often.",
            self._name,
            count,
        )

    def _expire(self, tables: EventTables, found: EventType, today: date) -> None:
        """Remove from the lake what its retention period no longer covers, once a day."""
        if self._expired_on == today:
            return
        try:
            since = kept_since(found.annotations.get(PERIOD), today)
        except Invalid as ex:
            _LOG.error("%s: %s Nothing is removed from its table.", self._name, ex)
            since = None
        if since is not None:
            tables.expire(since)
        self._expired_on = today

    # --- Metrics ---

    def _measure(self, found: EventType, partitions: Mapping[str, Bounds], now: datetime) -> int:
        """Set the metrics; how many events are not in the table yet."""
        places = self._places or {}
        lag = sum(
            self._locator.distance(name, places[name], each.newest)
            for name, each in partitions.items()
            if name in places and places[name] < each.newest
        )
        seconds = (now - self._complete_until).total_seconds() if lag and self._complete_until else 0.0
        self._metrics.lag_events.labels(self._name).set(lag)
        self._metrics.lag_seconds.labels(self._name).set(max(0.0, seconds))
        retention_ms = found.options.retention_time
        if retention_ms is None:
            return lag
        self._metrics.retention_seconds.labels(self._name).set(retention_ms / 1_000)
        if seconds * 2_000 > retention_ms:
            _LOG.warning(
                "%s: the archive is %d s behind, and the broker keeps events for %d s.",
                self._name,
                seconds,
                retention_ms // 1_000,
            )
        return lag
