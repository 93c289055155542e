"""`rioni archive`: keeps the events of event types in a lake, in rounds."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from rioni.client import Client, ClientError, ConnectionFailed
from rioni.config.logs import FailureLog
from rioni.domain.errors import Invalid, RioniError
from rioni.domain.event_types.rules import NAME_CHARACTERS_MAX, is_event_type_name
from rioni.lake.event_type_archive import ArchiveMetrics, CommitLimits, EventTypeArchive, RoundResult
from rioni.lake.location import Location
from rioni.lake.reader import event_type, marked_event_types
from rioni.lake.table import Lake


FORMATS = ("delta", "iceberg")

_LOG = logging.getLogger("rioni.lake")
_NOTHING = "Nothing is archived"


def open_lake(format_: str, location: Location, catalog: str | None) -> Lake:
    """The tables of a format.

    Raises:
        Invalid: there is no such format, or the catalog does not belong to it.
        Unavailable: the catalog can't be used.
    """
    if format_ == "parquet":
        raise Invalid(
            "Archives in Parquet with manifests of their own are no longer written; a Delta table is Parquet with a "
            f"standard log. Convert the archive first: rioni convert-archive {location.url}"
        )
    if format_ not in FORMATS:
        raise Invalid(f"{format_} is none of the formats {', '.join(FORMATS)}.")
    if format_ == "iceberg":
        from rioni.lake.iceberg_table import IcebergLake  # noqa: PLC0415 - each library takes long to import

        return IcebergLake(location, catalog)
    if catalog is not None:
        raise Invalid("Only Iceberg has a catalog.")
    from rioni.lake.delta_table import DeltaLake  # noqa: PLC0415 - each library takes long to import

    return DeltaLake(location)


class _Lines:
    """Writes the lines of a `FailureLog` as this process writes lines: not all levels are shown."""

    def error(self, message: str, *, reason: str, left_out: int = 0, **_: object) -> None:
        _LOG.error("%s: %s%s", message, reason, f" ({left_out} more such failures)" if left_out else "")

    def info(self, message: str, *, after: str, failures: int) -> None:
        _LOG.warning("%s after %d failures: %s", message.capitalize(), failures, after)


class Archive:
    """Archives event types one after the other, so that only the events of one commit are in memory."""

    def __init__(
        self,
        client: Client,
        lake: Lake,
        event_types: Sequence[str],
        limits: CommitLimits,
        metrics: ArchiveMetrics,
        *,
        keeps_json: bool = False,
        progress: Callable[[str, int, int], object] = lambda *_: None,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Prepare to archive.

        Args:
            client: of the broker that events come from.
            lake: where they go.
            event_types: their names; none for those whose annotations ask for it.
            limits: when events are committed.
            metrics: of this process.
            keeps_json: whether tables have the JSON of each event, too.
            progress: reports a phase, how much of it is done, and how much there is to do.
            note: reports the result so far.
        """
        self._client, self._lake, self._limits, self._metrics = client, lake, limits, metrics
        self._wanted, self._keeps_json = event_types, keeps_json
        self._archives: dict[str, EventTypeArchive] = {}
        self._progress, self._note = progress, note
        # An outage of the broker, the catalog or the disk is a few lines, however often it is tried again.
        self._failures = FailureLog(_Lines())

    def check_names(self) -> None:
        """Check that there is something to archive, before anybody learns of a job.

        Raises:
            ClientError: why the first of the named event types can't be archived, where none of them can.
        """
        problems = []
        for name in self._wanted:
            try:
                event_type(self._client, name)
            except ClientError as ex:
                problems.append(ex)
            else:
                return
        if problems:
            raise problems[0]

    def archive(self, is_stopped: Callable[[], bool]) -> tuple[dict[str, RoundResult], dict[str, Exception]]:
        """Archive the events that the broker holds now; blocks until then.

        Args:
            is_stopped: whether to end early, after a commit.

        Returns:
            The results, and the failures, by event type.

        Raises:
            ClientError: the broker does not list its event types.
        """
        names = self._wanted or marked_event_types(self._client)
        done: dict[str, RoundResult] = {}
        failed: dict[str, Exception] = {}
        away: ConnectionFailed | None = None
        for name in names:
            if is_stopped():
                break
            if name not in self._archives:
                self._archives[name] = EventTypeArchive(
                    self._client, self._lake, name, self._limits, self._metrics, keeps_json=self._keeps_json
                )
            try:
                if away is not None:
                    # A round waits for an outage of the broker once, not once for each event type.
                    raise away
                done[name] = self._archives[name].archive(is_stopped, partial(self._progress, name))
                self._failures.succeeded(_not_archived(name))
            except (RioniError, ClientError) as ex:
                if isinstance(ex, ConnectionFailed) and not ex.sent:
                    away = ex
                shown = _shown(name)
                failed[shown] = ex
                self._metrics.errors.labels(shown).inc()
                self._failures.failed(_not_archived(name), ex)
        self._progress("event types", len(done), len(names))
        problems = "".join(
            f"; {name}: {each.lost:,} events LOST to retention" for name, each in done.items() if each.lost
        )
        problems += "".join(f"; {name} failed: {ex}" for name, ex in failed.items())
        self._note(f"{self._archived():,} events archived{problems}")
        return done, failed

    def run(self, every_s: float, stopped: threading.Event) -> None:
        """Archive again and again, until `stopped` is set; blocks until then."""
        while not stopped.is_set():
            try:
                done, failed = self.archive(stopped.is_set)
                self._failures.succeeded(_NOTHING)
                if not stopped.is_set():
                    self._progress("wait for new events", len(done), len(done) + len(failed))
            except (RioniError, ClientError) as ex:
                self._failures.failed(_NOTHING, ex)
                self._note(f"{self._archived():,} events archived; the last round failed: {ex}")
            stopped.wait(every_s)

    def _archived(self) -> int:
        return sum(each.archived for each in self._archives.values())


def _shown(name: str) -> str:
    """A name that no event type can have is shown with escapes: it may hold control characters."""
    return name if is_event_type_name(name) else ascii(name[:NAME_CHARACTERS_MAX])


def _not_archived(name: str) -> str:
    return f"{_shown(name)} is not archived"
