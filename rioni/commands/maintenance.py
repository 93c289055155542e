"""Periodic maintenance jobs: clean up after dead processes, apply retention, delete expired state."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.job_runner import LoggedJobRunner
from rioni.commands.subscriptions.initial_cursors import CursorInitializer
from rioni.commands.timelines.timeline_switch import TimelineSwitcher
from rioni.commands.timelines.timelines import CleanUpTimeline, FindOrphanedTopics
from rioni.commands.timelines.topics import AbandonTopicCreation, RecordTopicsDeleted
from rioni.commands.unit_of_work import CommandContext, ErrorCollector
from rioni.config.logs import FailureLog
from rioni.domain.errors import EventTypeNotFound, NotFound, ReadOnly, RioniError, Unavailable
from rioni.domain.event_types.event_type import EventType
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores, TopicNames
from rioni.domain.ports.host import Clock
from rioni.domain.timelines.position import BEFORE_FIRST
from rioni.domain.timelines.topics import AbandonedTopic
from rioni.domain.timestamps import milliseconds


# --- Deletes abandoned topics, and the orphaned topics and cursors of processes that died ---

REFUSALS_MAX = 3
"""Failed deletions of a storage per round; its other topics wait for the next round, as each failure may be slow."""

RECORDED_AT_ONCE = 20
"""How many deleted topics one transaction records; it blocks other changes of the registry."""

_log = structlog.get_logger("rioni.orphan_cleanup")
_failures = FailureLog(_log)

_NOT_DELETED = "could not delete a topic; retrying later"


class OrphanCleaner:
    """Deletes topics without a timeline, and cursors without a subscription; blocks, but never other greenlets.

    Topics recorded as abandoned in the log are deleted, even if they have events. Anything else is deleted only if it
    was orphaned in the previous run as well; topics only if they are empty, cursors only if there is no stream. So the
    grace period is the caller's interval, no event is lost even if the log of another broker was mounted, and what is
    just being created stays.
    """

    def __init__(self, registry: Registry, stores: EventStores, coordinator: Coordinator, bus: CommandBus) -> None:
        self._registry = registry
        self._stores = stores
        self._coordinator = coordinator
        self._bus = bus
        self._refusals: Counter[str] = Counter()
        """Number of failed deletions by abandoned topic."""
        self._suspects: set[tuple[str, str]] = set()
        self._forgettable: set[str] = set()

    def clean(self, context: CommandContext) -> None:
        """Delete topics and cursors that were orphaned in the previous run and still are, in all usable storages.

        Raises:
            Unavailable: names those that can't.
        """
        self._forget()
        errors = ErrorCollector()
        before, self._suspects = self._suspects, self._nameless(errors)
        remaining = before & self._suspects
        for storage_id in sorted({storage_id for storage_id, _ in remaining}):
            topics = frozenset(topic for each, topic in remaining if each == storage_id)
            with errors.of(f"storage {storage_id}"):
                orphaned = self._bus.dispatch(FindOrphanedTopics(storage_id=storage_id, topics=topics), context)
                if deleted := [topic for topic in orphaned if self._delete_empty(storage_id, topic)]:
                    _log.info("topics without a timeline were deleted", storage_id=storage_id, topics=deleted)
        errors.report()

    def abandon_unfinished(self, context: CommandContext) -> None:
        """Abandon the topics that processes were creating which have died.

        Raises:
            Unavailable: names the topics for which that is not possible now; the others are.
        """
        self._registry.refresh()
        errors = ErrorCollector()
        for creation in self._registry.topic_creations():
            with errors.of(f"topic {creation.topic}"):
                if not self._bus.is_running(creation.worker, creation.topic):
                    self._bus.dispatch(AbandonTopicCreation(creation=creation, delete=False), context)
        errors.report()

    def delete_abandoned(self, context: CommandContext) -> None:
        """Delete the topics recorded as abandoned in the log; failures are logged and retried in the next run.

        Topics of removed storages are left too: a storage may be added again.
        """
        self._registry.refresh()
        if "disable_db_write_operations" in self._registry.settings.features:
            return
        abandoned = self._registry.abandoned_topics()
        self._refusals = Counter({each.topic: self._refusals[each.topic] for each in abandoned})
        deleted, silent = [], Counter[str]()
        # Topics with the fewest failed deletions first, so that failing ones don't delay the others.
        for each in sorted(abandoned, key=lambda each: self._refusals[each.topic]):
            if silent[each.storage_id] < REFUSALS_MAX and self._registry.storage(each.storage_id) is not None:
                if self._delete(each):
                    deleted.append(each.topic)
                else:
                    silent[each.storage_id] += 1
                    self._refusals[each.topic] += 1
        for begin in range(0, len(deleted), RECORDED_AT_ONCE):
            self._bus.dispatch(RecordTopicsDeleted(topics=deleted[begin : begin + RECORDED_AT_ONCE]), context)

    def _delete(self, abandoned: AbandonedTopic) -> bool:
        try:
            self._stores.of(abandoned.storage_id).delete_topic(abandoned.topic)
        except RioniError as ex:
            _failures.failed(_NOT_DELETED, ex, of=abandoned.storage_id, **msgspec.structs.asdict(abandoned))
            return False
        _failures.succeeded(_NOT_DELETED, of=abandoned.storage_id, storage_id=abandoned.storage_id)
        return True

    def _delete_empty(self, storage_id: str, topic: str) -> bool:
        """Delete a topic that never had an event; return whether it was deleted."""
        store = self._stores.of(storage_id)
        with suppress(NotFound):  # another process was faster
            if all(bounds.newest == BEFORE_FIRST for bounds in store.bounds(topic)):
                store.delete_topic(topic)
                return True
        return False

    def _forget(self) -> None:
        initialised = {*self._coordinator.initialised()}
        # In this order: a subscription is recorded before it is first streamed.
        self._registry.refresh()
        before = self._forgettable
        self._forgettable = initialised - {subscription.id for subscription in self._registry.subscriptions()}
        for subscription_id in sorted(before & self._forgettable):
            if not self._coordinator.topology(subscription_id).sessions:
                self._coordinator.delete(subscription_id)
                _log.info("cursors without a subscription were deleted", subscription_id=subscription_id)

    def _nameless(self, errors: ErrorCollector) -> set[tuple[str, str]]:
        """All topics that no timeline names, each with its storage."""
        self._registry.refresh()
        there: set[tuple[str, str]] = set()
        for storage in self._registry.storages():
            with errors.of(f"storage {storage.id}"):
                store = self._stores.of(storage.id)
                if isinstance(store, TopicNames):
                    there |= {(storage.id, topic) for topic in store.topics()}
        # In this order: switches, and creations of event types, are recorded before their topics are created.
        self._registry.refresh()
        every = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        timelines = [timeline for each in every for timeline in each.timelines]
        timelines += [each.switch.timeline for each in every if each.switch]
        named = {(each.storage_id, each.topic) for each in timelines}
        return there - named - {(each.storage_id, each.topic) for each in self._registry.topic_creations()}


# --- Retention and compaction: deletes expired events and removes superseded ones ---
#
# Source: reference event-types#cleanup-policy, timelines#cleanup.

_retention_log = structlog.get_logger("rioni.retention")
_retention_failures = FailureLog(_retention_log)

_EXPIRED_NOT_DELETED = "could not delete expired events"
_NOT_COMPACTED = "a timeline could not be compacted"
_NOT_EXPIRED = "could not expire idempotency keys"


UNDER_WAY_MS = 300_000
"""A batch that was checked before a change of its event type is stored within this time, or not at all."""


class Retention:
    """Removes events, and closed timelines as a whole; blocks on stores and database, but never other greenlets."""

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        bus: CommandBus,
        clock: Clock,
        *,
        idempotency_window_s: int,
        compaction_lag_s: int,
        every_s: int,
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._bus = bus
        self._clock = clock
        self.every_s = every_s
        """Interval at which to call it."""
        self._idempotency_window_ms = 1_000 * idempotency_window_s
        self._compaction_lag_ms = 1_000 * compaction_lag_s

    def expire(self, context: CommandContext) -> None:
        """Delete expired events; a failure for a timeline is logged, and retried in the next run."""
        self._registry.refresh()
        every = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        places = [(each.event_type, timeline.order) for each in every for timeline in each.readable]
        with _retention_failures.round(_EXPIRED_NOT_DELETED) as attempt:
            for name, order in places:
                # Deleted a moment ago; or paused until writing is allowed again (reference
                # settings-and-storages#feature-effects).
                with attempt(event_type=name, order=order), suppress(EventTypeNotFound, ReadOnly):
                    self._expire(name, order, context)

    def compact(self) -> None:
        """Remove superseded events of compacted event types after their retention; handles failures as `expire` does.

        Source: reference event-types#cleanup-policy.
        """
        self._registry.refresh()
        before_ms = self._clock.now_ms() - self._compaction_lag_ms
        with _retention_failures.round(_NOT_COMPACTED) as attempt:
            for event_type in self._registry.event_types():
                if event_type.cleanup_policy != "delete":
                    for timeline in self._registry.timelines(event_type.name).readable:
                        with attempt(event_type=event_type.name):
                            store = self._stores.of(timeline.storage_id)
                            store.compact(timeline.topic, before_ms, _keyed_since_ms(event_type))

    def expire_ids(self) -> None:
        """Delete idempotency keys older than the deduplication window."""
        timelines = (self._registry.timelines(event_type.name) for event_type in self._registry.event_types())
        # Keys outlive the events of timelines that were cleaned up.
        storage_ids = {timeline.storage_id for each in timelines for timeline in each.timelines}
        before_ms = self._clock.now_ms() - self._idempotency_window_ms
        with _retention_failures.round(_NOT_EXPIRED) as attempt:
            for storage_id in storage_ids:
                with attempt(storage_id=storage_id):
                    if self._registry.storage(storage_id) is not None:
                        self._stores.of(storage_id).expire_ids(before_ms)

    def _expire(self, name: str, order: int, context: CommandContext) -> None:
        # A round may be long, and the retention time may have been raised meanwhile.
        self._registry.refresh()
        timelines, retention_ms = self._registry.timelines(name), self._registry.event_type(name).retention_ms
        timeline = next((each for each in timelines.readable if each.order == order), None)
        if timeline is None or retention_ms is None:
            return
        now_ms = self._clock.now_ms()
        over = timelines.is_over(timeline, retention_ms, now_ms)
        try:
            store = self._stores.of(timeline.storage_id)
            # The retention time may reach back before the epoch; stores take no times before it.
            store.delete_before(timeline.topic, max(0, now_ms - retention_ms))
            # The switch that closed it may have taken long, so events may be younger than its start.
            over = over and all(bounds.newest < bounds.oldest for bounds in store.bounds(timeline.topic))
        except (NotFound, Unavailable):
            if not over:
                raise
        if over:
            command = CleanUpTimeline(event_type=name, order=order, now_ms=now_ms)
            self._bus.dispatch(command, context)


def _keyed_since_ms(event_type: EventType) -> int:
    """The time since which all events of a compacted event type certainly have a key.

    Before the last update of the event type its cleanup policy may have been different.
    """
    if event_type.cleanup_policy == "compact" or event_type.updated_at == event_type.created_at:
        return 0
    return milliseconds(event_type.updated_at) + UNDER_WAY_MS


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
        context: Callable[[], CommandContext],
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
            run("retention", partial(self._in_context, self._retention.expire))
            run("compaction", self._retention.compact)
            run("forgetting ids", self._retention.expire_ids)
            run("adding partitions to subscriptions", self._cursor_initializer.extend)
            run("abandoning unfinished topics", partial(self._in_context, self._orphan_cleaner.abandon_unfinished))
            run("deleting abandoned topics", partial(self._in_context, self._orphan_cleaner.delete_abandoned))
        if self._clock.monotonic() >= self._clean_at_s:
            self._clean_at_s = self._clock.monotonic() + CLEAN_EVERY_S
            run("deleting orphaned topics", partial(self._in_context, self._orphan_cleaner.clean))

    def expire(self) -> None:
        """Remove the events whose retention time is over."""
        self._retention.expire(self._context())

    def _in_context(self, job: Callable[[CommandContext], None]) -> None:
        job(self._context())

    def _repair(self) -> None:
        self._registry.refresh()
        self._timeline_switcher.repair(self._context)
