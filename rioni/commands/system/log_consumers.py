"""Consumers of the internal log that publish its entries as system events, each exactly once.

Each event is stored as a separate batch, with its id as idempotency key, so the event store stores it once. The
checkpoint is saved after that. So a crash at any moment neither loses nor duplicates an event.
"""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.system.system_events import SystemEventPublisher, SystemEventTypes
from rioni.domain.ports.event_log import CheckpointedLogReader, RecordedChange
from rioni.domain.ports.host import ThreadPool
from rioni.domain.ports.interprocess import Leadership
from rioni.domain.system.settings import SETTINGS, FeatureSwitched, Settings
from rioni.domain.system.system_events import SystemEvent


ENTRIES_PER_STEP = 500
REMEMBER_EVERY_ENTRIES = 1_000
"""Maximum number of entries without events that a new process reads again: the checkpoint is saved this often."""


class LogConsumer(NamedTuple):
    """Derives the events of one system event type from the log."""

    event_type: str
    feature: str
    """The feature that enables it; switching it on or off is reported too."""
    events: Callable[[Sequence[RecordedChange]], Sequence[SystemEvent]]
    """The events that report on the entries of one command, in their order."""

    @property
    def follower(self) -> str:
        """The name of its checkpoint."""
        return f"feed:{self.event_type}"


class LogConsumers:
    """Runs all consumers of the log, in one process of the broker."""

    def __init__(
        self,
        consumers: Sequence[LogConsumer],
        reader: CheckpointedLogReader,
        leadership: Leadership,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        pool: ThreadPool,
    ) -> None:
        self._leadership, self._system_event_types = leadership, system_event_types
        self._followers = {
            feed.event_type: _Follower(feed, reader, system_event_types, publisher, pool) for feed in consumers
        }
        self._runner = LoggedJobRunner()

    def tick(self) -> None:
        """Process new entries. A consumer that fails is logged, and resumes at its checkpoint."""
        self._runner.run("feeds", self._go_on)

    def _go_on(self) -> bool:
        """Whether this process runs them."""
        if not self._leadership.held():
            return False
        self._runner.run("event types", self._system_event_types.ensure)
        for name, follower in self._followers.items():
            self._runner.run(name, follower.go_on)
        return True

    def close(self) -> None:
        """Let another process run them."""
        self._leadership.close()

    def behind(self) -> dict[str, int]:
        """The lag of each event type in log entries; 0 if another process runs the consumers."""
        return {name: follower.behind() for name, follower in self._followers.items()}


class _Follower:
    """Runs one consumer and keeps its checkpoint."""

    def __init__(
        self,
        feed: LogConsumer,
        reader: CheckpointedLogReader,
        system_event_types: SystemEventTypes,
        publisher: SystemEventPublisher,
        pool: ThreadPool,
    ) -> None:
        self._feed, self._reader, self._pool = feed, reader, pool
        self._system_event_types, self._publisher = system_event_types, publisher
        self._position: int | None = None
        """Position of the last processed entry; None until the checkpoint has been read."""
        self._head = self._remembered = 0
        self._on = False

    def behind(self) -> int:
        """Number of unprocessed entries when the head was last read."""
        return 0 if self._position is None else self._head - self._position

    def go_on(self) -> None:
        """Process all entries up to the head of the log."""
        if self._position is None:
            self._begin()
        self._head = self._reader.head()
        while self._head != self._position:
            self._step()
            self._head = self._reader.head()

    def _begin(self) -> None:
        self._remembered = position = self._pool(self._reader.checkpoint, self._feed.follower)
        settings = self._pool(self._reader.state, "settings", SETTINGS, position)
        self._on = settings is not None and self._feed.feature in msgspec.json.decode(settings, type=Settings).features
        self._position = position

    def _step(self) -> None:
        assert self._position is not None
        changes = self._pool(self._reader.changes, self._position, ENTRIES_PER_STEP)
        published, on = False, self._on
        for _, command in groupby(changes, key=lambda change: change.entry.origin.command_id):
            wanted = []
            for change in command:
                was_on, event = on, change.entry.event
                if isinstance(event, FeatureSwitched) and event.feature == self._feed.feature:
                    on = event.enabled
                if was_on or on:
                    wanted.append(change)
            for report in self._feed.events(wanted):
                self._system_event_types.ensure_one(self._feed.event_type)
                # One by one: after a crash the next process may read more of the command's transactions at once.
                self._publisher.publish(self._feed.event_type, [report], name=report.eid)
                published = True
        position = changes[-1].entry.position
        if published or position - self._remembered >= REMEMBER_EVERY_ENTRIES:
            self._pool(self._reader.save_checkpoint, self._feed.follower, position)
            self._remembered = position
        self._position, self._on = position, on
