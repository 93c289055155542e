"""Periodic maintenance jobs: clean up after dead processes, apply retention, delete expired state."""

from collections.abc import Callable

from rioni.commands.background.orphan_cleanup import OrphanCleaner
from rioni.commands.background.retention import Retention
from rioni.commands.context import Context
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.domain.ports.clock import Clock
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.registry import Registry


CLEAN_EVERY_S = 3_600.0


class BackgroundJobs:
    """Runs the background jobs of one process; running them in every process is safe."""

    def __init__(
        self,
        registry: Registry,
        coordinator: Coordinator,
        clock: Clock,
        *,
        retention: Retention,
        cursor_initializer: CursorInitializer,
        timeline_switcher: TimelineSwitcher,
        orphan_cleaner: OrphanCleaner,
        context: Callable[[], Context],
    ) -> None:
        """Keep the dependencies; `context` makes the context of a command that the broker itself issues."""
        self._registry = registry
        self._coordinator = coordinator
        self._clock = clock
        self._retention = retention
        self._cursor_initializer = cursor_initializer
        self._timeline_switcher = timeline_switcher
        self._orphan_cleaner = orphan_cleaner
        self._context = context
        self._runner = LoggedJobRunner()
        self._expire_at_s = clock.monotonic() + retention.every_s
        self._clean_at_s = clock.monotonic() + CLEAN_EVERY_S

    def tick(self) -> None:
        """Run the jobs that are due. Blocks on the disk; a job that fails is logged and retried."""
        run = self._runner.run
        run("ending dead sessions", self._coordinator.expire_dead_sessions)
        run("repairing switches", self._repair)
        if self._clock.monotonic() >= self._expire_at_s:
            self._expire_at_s = self._clock.monotonic() + self._retention.every_s
            run("retention", self.expire)
            run("compaction", self._retention.compact)
            run("forgetting ids", self._retention.expire_ids)
            run("adding partitions to subscriptions", self._cursor_initializer.extend)
            run("abandoning unfinished topics", self._abandon_unfinished)
            run("deleting abandoned topics", self._delete_abandoned)
        if self._clock.monotonic() >= self._clean_at_s:
            self._clean_at_s = self._clock.monotonic() + CLEAN_EVERY_S
            run("deleting orphaned topics", self._clean)

    def expire(self) -> None:
        """Remove the events whose retention time is over."""
        self._retention.expire(self._context())

    def _clean(self) -> None:
        self._orphan_cleaner.clean(self._context())

    def _abandon_unfinished(self) -> None:
        self._orphan_cleaner.abandon_unfinished(self._context())

    def _delete_abandoned(self) -> None:
        self._orphan_cleaner.delete_abandoned(self._context())

    def _repair(self) -> None:
        self._registry.refresh()
        self._timeline_switcher.repair(self._context)
