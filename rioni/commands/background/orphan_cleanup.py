"""Deletes abandoned topics, and the orphaned topics and cursors of processes that died."""

import contextlib
from collections import Counter

import msgspec
import structlog

from rioni.commands.bus import CommandBus
from rioni.commands.context import Context
from rioni.commands.error_collector import ErrorCollector
from rioni.commands.timelines.timelines import FindOrphanedTopics
from rioni.commands.timelines.topic_creation import AbandonTopicCreation
from rioni.commands.timelines.topic_deletion import RecordTopicsDeleted
from rioni.config.failures import FailureLog
from rioni.domain.errors import NotFound, RioniError
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.registry import Registry
from rioni.domain.ports.topic_names import TopicNames
from rioni.domain.timelines.position import BEFORE_FIRST
from rioni.domain.timelines.topic_deletion import AbandonedTopic


REFUSALS_MAX = 3
"""Failed deletions of a storage per round; its other topics wait for the next round, as each failure may be slow."""

RECORDED_AT_ONCE = 20
"""How many deleted topics one transaction records; it blocks other changes of the registry."""

_log = structlog.get_logger("rioni.orphan_cleanup")
_failures = FailureLog(_log)

_NOT_DELETED = "could not delete a topic; retrying later"


class OrphanCleaner:
    """Deletes topics without a timeline, and cursors without a subscription; blocks, but never other greenlets.

    Topics that the log says are abandoned are deleted, whatever they hold. Anything else is deleted only if it was
    orphaned in the previous run as well; topics only if they are empty, cursors only if there is no stream. So the
    grace period is the caller's interval, no event is lost even where the log of another broker was mounted, and
    what is just being created stays.
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

    def clean(self, context: Context) -> None:
        """Delete what was orphaned in the previous run and still is, in all storages that can be used.

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

    def abandon_unfinished(self, context: Context) -> None:
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

    def delete_abandoned(self, context: Context) -> None:
        """Delete the topics that the log says are to be deleted; failures are logged and retried in the next run.

        Topics of removed storages are left too: a storage may be added again.
        """
        self._registry.refresh()
        if "disable_db_write_operations" in self._registry.settings.features:
            return
        abandoned = self._registry.abandoned_topics()
        self._refusals = Counter({each.topic: self._refusals[each.topic] for each in abandoned})
        deleted, silent = [], Counter[str]()
        # Those with the fewest failed deletions first, so that failing ones don't delay the others.
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
        with contextlib.suppress(NotFound):  # another process was faster
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
        timelines = [self._registry.timelines(event_type.name) for event_type in self._registry.event_types()]
        named = {(each.storage_id, each.topic) for every in timelines for each in every.timelines}
        switched_to = {
            (every.switch.timeline.storage_id, every.switch.timeline.topic) for every in timelines if every.switch
        }
        created = {(each.storage_id, each.topic) for each in self._registry.topic_creations()}
        return there - named - switched_to - created
