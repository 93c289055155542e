"""Appends batches to the active timelines of their event types, once even if an event type moves to another storage.

Sources: reference timelines#switch-steps, timelines#deduplication-across-timelines.

A store only knows its own events, so before an append the other stores are checked for duplicates. The
result stays valid: either their topics are closed for good, or the append is rejected as too late and the check
repeated.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from rioni.domain.errors import (
    EventTypeNotFound,
    IdempotencyKeyReused,
    NotFound,
    PartiallyStored,
    RioniError,
    TopicClosed,
    Unavailable,
)
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import Appended, EventStore, EventStores
from rioni.domain.ports.host import LOG_KEY, Clock, Notifier
from rioni.domain.publishing.headers import Headers, IdempotencyClaim
from rioni.domain.timelines.timeline import Timeline


T = TypeVar("T")

LOOK_EVERY_S = 1.0
"""How often a waiter checks the timelines, should a notification be lost."""


class TimelineAppender:
    """Appends events to the active timelines of their event types, and waits while these are being switched.

    Whether a timeline is active is decided by its store: a late append is rejected there, and goes to the next
    timeline. So even a process with a stale registry never appends after the end of a timeline.
    """

    def __init__(
        self, registry: Registry, stores: EventStores, signals: Notifier, clock: Clock, *, wait_max_s: float
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._signals = signals
        self._clock = clock
        self._wait_max_s = wait_max_s
        self.found_closed: dict[str, Timeline] = {}
        """Active timelines whose topics are closed although no switch is in progress, by event type."""

    def has_stored(self, event_type: str, claim: IdempotencyClaim) -> bool:
        """Whether a batch was stored under its idempotency key in any of the event type's stores; blocks on them.

        Raises:
            IdempotencyKeyReused: another batch was stored under that key.
            Unavailable: a store can't be queried.
        """
        return _is_duplicate(claim, self._stores_of(event_type))

    def append(
        self,
        timeline: Timeline,
        batches: Mapping[int, Sequence[bytes]],
        *,
        headers: Mapping[int, Sequence[Headers]] | None = None,
        ids: Mapping[int, Sequence[str]] | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Appended:
        """Append events to a timeline, or to its successor if it is being closed; see `EventStore.append`.

        Blocks on the stores, and while timelines are being switched.

        Args:
            timeline: the active one, as last known.
            batches: the events, by partition; nothing is done without events.
            headers: stored with the events.
            ids: the ids of the events; events stored before, in any of the event type's stores, are left out.
            claim: idempotency key and digest of the batch, which is left out if it was stored before.

        Raises:
            EventTypeNotFound: the event type was deleted, or recreated under the same name.
            IdempotencyKeyReused: another batch was stored under this key.
            PartiallyStored: some partitions were not written, or the outcome is unknown, or the rest of the batch found
                no open timeline in time.
            Unavailable: nothing was written: the store fails, or the switch took too long.
        """
        if not batches:
            return Appended()
        rest = _RemainingBatch(batches, headers, ids, claim)
        try:
            return self._append(timeline, rest)
        except (TopicClosed, NotFound):
            # Closed, or even cleaned up; or the event type was deleted, which the registry knows.
            try:
                return self._wait_and_append(timeline, rest)
            except PartiallyStored:
                raise
            except RioniError as ex:
                if not rest.partially_stored:
                    raise
                # The next timeline did not come in time, or at all.
                raise PartiallyStored(dict.fromkeys(rest.batches, "interrupted")) from ex

    def _append(self, timeline: Timeline, rest: "_RemainingBatch") -> Appended:
        store = self._stores.of(timeline.storage_id)
        others = self._stores_of(timeline.event_type, without=store) if rest.once else ()
        return rest.append(store, timeline.topic, others)

    def _wait_and_append(self, closed: Timeline, rest: "_RemainingBatch") -> Appended:
        deadline_s = self._clock.monotonic() + self._wait_max_s
        waiter = self._signals.watch([LOG_KEY])
        try:
            while True:
                self._registry.refresh()
                timelines = self._registry.timelines(closed.event_type)
                if all(each.id != closed.id for each in timelines.timelines):
                    raise EventTypeNotFound(closed.event_type)
                active = timelines.active
                try:
                    return self._append(active, rest)
                except TopicClosed as ex:
                    self._note_closed(active)
                    left_s = deadline_s - self._clock.monotonic()
                    if left_s <= 0:
                        raise Unavailable(
                            f"Event type {closed.event_type} is currently in maintenance, please repeat request"
                        ) from ex
                waiter.wait(min(left_s, LOOK_EVERY_S))
        finally:
            waiter.close()

    def _note_closed(self, closed: Timeline) -> None:
        """Record a timeline that would stay closed for ever; `TimelineSwitcher.repair` replaces it.

        No switch leaves such a timeline, but earlier releases did, and a restored older log does. A switch may have
        been completed during the call to the store: then the timeline that rejected the append is not the active one.
        """
        timelines = self._registry.timelines(closed.event_type)
        if timelines.switch is None and timelines.active.id == closed.id:
            self.found_closed[closed.event_type] = closed

    def _stores_of(self, event_type: str, without: EventStore | None = None) -> Sequence[EventStore]:
        """All stores that hold or held events of an event type, except the given one.

        Their idempotency keys and ids may be needed longer than the events themselves.
        """
        storages = {timeline.storage_id for timeline in self._registry.timelines(event_type).timelines}
        there = [self._stores.of(each) for each in storages if self._registry.storage(each) is not None]
        return [store for store in there if store is not without]


class _RemainingBatch:
    """The rest of a batch: a topic that is being closed may store a part of it, and the next topic gets the rest."""

    def __init__(
        self,
        batches: Mapping[int, Sequence[bytes]],
        headers: Mapping[int, Sequence[Headers]] | None,
        ids: Mapping[int, Sequence[str]] | None,
        claim: IdempotencyClaim | None,
    ) -> None:
        self.batches, self._headers, self._ids, self._claim = batches, headers, ids, claim
        self.once = claim is not None or ids is not None
        """Whether the batch or its events are deduplicated."""
        self.partially_stored = False

    def append(self, store: EventStore, topic: str, others: Collection[EventStore]) -> Appended:
        """Append the rest, except events that this store or one of the others has stored before."""
        if self._claim is not None and _is_duplicate(self._claim, others):
            return _duplicates(self.batches)
        try:
            return self._append_unknown(store, topic, _known_ids(self._ids, others))
        except TopicClosed as ex:
            self._drop(ex.stored)
            raise

    def _append_unknown(self, store: EventStore, topic: str, known: Collection[str]) -> Appended:
        if self._ids is None or not known:
            return store.append(topic, self.batches, headers=self._headers, ids=self._ids, claim=self._claim)
        ids = self._ids
        kept = {
            number: [index for index in range(len(events)) if number not in ids or ids[number][index] not in known]
            for number, events in self.batches.items()
        }
        unknown = _pick(self.batches, kept)
        if not unknown:
            return _duplicates(self.batches)
        headers = self._headers and _pick(self._headers, kept)
        appended = store.append(topic, unknown, headers=headers, ids=_pick(ids, kept), claim=self._claim)
        appended.duplicates += _count(self.batches) - _count(unknown)
        return appended

    def _drop(self, stored: Mapping[int, int]) -> None:
        if any(stored.values()):
            self.partially_stored = True
            kept = {number: range(stored.get(number, 0), len(events)) for number, events in self.batches.items()}
            self.batches = _pick(self.batches, kept)
            self._headers = self._headers and _pick(self._headers, kept)
            self._ids = self._ids and _pick(self._ids, kept)


def _is_duplicate(claim: IdempotencyClaim, stores: Collection[EventStore]) -> bool:
    digests = {store.claimed(claim.id) for store in stores} - {None}
    if digests - {claim.digest}:
        raise IdempotencyKeyReused
    return bool(digests)


def _known_ids(ids: Mapping[int, Sequence[str]] | None, stores: Collection[EventStore]) -> Collection[str]:
    """The ids of events that one of the stores has stored."""
    asked = [each for some in ids.values() for each in some] if ids and stores else []
    return frozenset().union(*(store.existing_ids(asked) for store in stores)) if asked else frozenset()


def _pick(values: Mapping[int, Sequence[T]], kept: Mapping[int, Sequence[int]]) -> dict[int, list[T]]:
    picked = {number: [each[index] for index in kept[number]] for number, each in values.items()}
    return {number: each for number, each in picked.items() if each}


def _duplicates(batches: Mapping[int, Sequence[bytes]]) -> Appended:
    """The result of a batch all of whose events are duplicates."""
    appended = Appended()
    appended.duplicates = _count(batches)
    return appended


def _count(batches: Mapping[int, Sequence[bytes]]) -> int:
    return sum(map(len, batches.values()))
