"""Keeps the lag of all subscriptions up to date, at a cost that depends on what changes alone.

Only subscriptions whose event types got events, or whose cursors moved, are looked at; see `ports.host`. Those
that lag and stay as they are only age, which costs nothing.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import structlog

from rioni.commands.system.followed_subscriptions import FollowedSubscriptions
from rioni.config.logs import FailureLog
from rioni.domain.errors import EventTypeNotFound, NotFound, Unavailable
from rioni.domain.ports.coordinator import CommittedOffsets, Coordinator
from rioni.domain.ports.event_log import Registry
from rioni.domain.ports.event_store import EventStores
from rioni.domain.ports.host import ChangeFlags, Clock
from rioni.domain.subscriptions.cursor_arithmetic import OffsetRanges, start_offsets
from rioni.domain.subscriptions.lag import NEVER, EndTimes, Lag, unconsumed_of
from rioni.domain.timelines.position import Bounds, EventTypePartition, stored_place
from rioni.domain.timelines.timeline import Timelines
from rioni.projections.queries.timeline_reader import newest_in, offset_ranges_of, recorded_at_ms_after


BUSY_S = 0.35
"""How long a look may take; the next look does the rest."""
TOGETHER_MAX = 200
"""Subscriptions whose cursors are read together."""
CHECKED_AT_ONCE, TURNS = 14, 40
"""Subscriptions that are checked in turn when no others are, whether they have changed or not: each about twice a
minute, but no more than 20 a second in all."""
REST = 10.0
"""A server that has failed is left alone for this many times the duration of the failed call."""

T = TypeVar("T")

_failures = FailureLog(structlog.get_logger("rioni.lags"))
_UNREADABLE = "lags of subscriptions can't be read"


class LagMonitor:
    """The lags of all subscriptions, of one process of a node."""

    def __init__(
        self,
        registry: Registry,
        stores: EventStores,
        coordinator: Coordinator,
        flags: ChangeFlags,
        clock: Clock,
        pause: Callable[[], object] = lambda: None,
    ) -> None:
        """Begin without lags.

        Args:
            registry: the registry of this process.
            stores: the stores of this process.
            coordinator: the coordinator of this process.
            flags: raised for topics and subscriptions.
            clock: for ages, and to limit how long a look takes.
            pause: called between two subscriptions, so that others can work.
        """
        self._registry, self._stores, self._coordinator = registry, stores, coordinator
        self._flags, self._clock, self._pause = flags, clock, pause
        self.lags: dict[str, Lag] = {}
        """The lag of each subscription, if it is known."""
        self.lagging: dict[str, dict[EventTypePartition, Lag]] = {}
        """The lags of partitions that have unconsumed events, by subscription."""
        self.events = 0
        """The sum of their events."""
        self.as_of_ms = 0
        """All changes before this time are included."""
        self.ready = False
        """Whether every subscription has been checked once, with or without success."""
        self._followed = FollowedSubscriptions(registry, flags)
        self._position = -1
        self._outdated: dict[str, None] = {}
        """Subscriptions to check, in order."""
        self._appended: set[str] = set()
        self._failed: set[str] = set()
        """The ids of subscriptions whose lag could not be determined."""
        self._turns: Iterator[str] = iter(())
        self._end_times = EndTimes()
        self._since: dict[str, dict[EventTypePartition, _FirstEvent]] = {}
        """The first unconsumed event, by subscription and partition."""
        self._resting_until_s: dict[str, float] = {}

    def gather(self) -> None:
        """Note changes on this node, without checking lags. Cheap, but may block on the database."""
        self._follow_registry()
        topics, subscriptions = self._followed.flagged(self._flags.take())
        self._appended.update(topics)
        self._outdate(subscriptions)
        self.note_appended(topics)

    def take_appended(self) -> Collection[str]:
        """The topics that were appended to on this node since the last call."""
        appended, self._appended = self._appended, set()
        return appended

    def look(self) -> None:
        """Check changed subscriptions, for `BUSY_S` and one request at most. Blocks on servers.

        Failures are logged; the lags remain as they were then, and are checked again.
        """
        now_ms, until_s = self._clock.now_ms(), self._clock.monotonic() + BUSY_S
        self.gather()
        if not self._outdated:
            some = 1 + len(self._followed.subscriptions) // TURNS
            self._outdate(islice(self._in_turn(), min(some, CHECKED_AT_ONCE)))
        while self._outdated and self._clock.monotonic() < until_s:
            if not self._look_at(self._next(), until_s):
                break
        if not self._outdated:
            self.as_of_ms = now_ms
        self.ready = self.ready or self._outdated.keys() <= self._failed

    def note_appended(self, topics: Iterable[str]) -> None:
        """Have the subscriptions of topics checked next time; for appends on other nodes too. Cheap, never blocks."""
        for topic in topics:
            self._outdate(self._followed.subscribers_of(topic))

    def look_at_all(self) -> None:
        """Have all subscriptions checked, as changes may have been missed. Cheap, never blocks."""
        self._end_times.forget_all()
        self._outdate(self._followed.subscriptions)

    def _outdate(self, subscription_ids: Iterable[str]) -> None:
        self._outdated.update(dict.fromkeys(subscription_ids))

    def _in_turn(self) -> Iterator[str]:
        """Yield all subscriptions again and again, once at most in a call."""
        for _ in range(2):
            yield from self._turns
            self._turns = iter([*self._followed.subscriptions])

    def _follow_registry(self) -> None:
        self._registry.refresh()
        if self._registry.position == self._position:
            return
        changed = None if self._position < 0 else self._registry.changed_since(self._position)
        self._position = self._registry.position
        if changed is None:
            existing = (("subscription", each.id) for each in self._registry.subscriptions())
            changed = {*existing, *(("subscription", each) for each in self._followed.subscriptions)}
        for kind, key in changed:
            if kind == "subscription":
                if self._followed.follow(key):
                    self._outdate([key])
                else:
                    self._outdated.pop(key, None)
                    self._set(key, None)
            elif kind == "timeline":
                self._outdate(self._followed.switch(key))
        for topic in self._followed.dropped():
            self._end_times.forget(topic)

    # --- Measuring ---

    def _look_at(self, subscription_ids: Sequence[str], until_s: float) -> bool:
        """Check some subscriptions; return whether to continue."""
        # Cursors are read first, so they are never beyond the ends.
        cursors = self._asked("coordinator", lambda: self._coordinator.cursors_of(subscription_ids))
        if cursors is None:
            self._failed.update(subscription_ids)
            self._outdate(subscription_ids)
            return False
        ends = self._ends({name for each in subscription_ids for name in self._followed.event_types_of(each)})
        left: list[str] = []
        ranges: dict[str, Sequence[OffsetRanges]] = {}
        for subscription_id in subscription_ids:
            of_names = [ends.get(name) for name in self._followed.event_types_of(subscription_id)]
            if self._clock.monotonic() >= until_s:
                left.append(subscription_id)
            elif None in of_names:
                self._failed.add(subscription_id)
                left.append(subscription_id)
            else:
                self._failed.discard(subscription_id)
                known_ends = [each for each in of_names if each]
                try:
                    lag = self._lag(subscription_id, cursors[subscription_id], known_ends, ranges)
                except Unavailable as ex:
                    # Only this subscription fails: a stored offset is damaged.
                    _failures.failed(_UNREADABLE, ex, subscription_id=subscription_id)
                    lag = None
                self._set(subscription_id, lag)
                self._pause()
        # These come after all others, which must not wait for failing ones.
        self._outdate(left)
        return len(left) < len(subscription_ids)

    def _next(self) -> list[str]:
        """Take some subscriptions: changes while they are being checked outdate them again."""
        taken = [*islice(self._outdated, TOGETHER_MAX)]
        for each in taken:
            del self._outdated[each]
        return taken

    def _ends(self, names: Collection[str]) -> dict[str, tuple[Timelines, Sequence[Bounds]]]:
        """The timelines of event types, and the bounds of the topics that they are stored in now, if known."""
        found: dict[str, tuple[Timelines, Sequence[Bounds]]] = {}
        by_storage: defaultdict[str, dict[str, Timelines]] = defaultdict(dict)
        for name in names:
            with suppress(EventTypeNotFound):
                timelines = self._registry.timelines(name)
                by_storage[timelines.active.storage_id][timelines.active.topic] = timelines
        for storage_id, wanted in by_storage.items():
            partitions = {topic: each.active.partitions for topic, each in wanted.items()}
            ask = partial(lambda id_, topics: self._stores.of(id_).bounds_of(topics), storage_id, partitions)
            bounds, now_ms = self._asked(storage_id, ask) or {}, self._clock.now_ms()
            for topic, each in bounds.items():
                self._end_times.see(topic, [one.newest + 1 for one in each], now_ms)
                found[wanted[topic].event_type] = wanted[topic], each
        return found

    def _asked(self, server: str, ask: Callable[[], T]) -> T | None:
        """Return the answer of a server; None if it fails, or has failed a moment ago."""
        begin_s = self._clock.monotonic()
        if begin_s < self._resting_until_s.get(server, begin_s):
            return None
        try:
            answer = ask()
        except Unavailable as ex:
            end_s = self._clock.monotonic()
            self._resting_until_s[server] = end_s + REST * (end_s - begin_s)
            _failures.failed(_UNREADABLE, ex, of=server, server=server)
            return None
        _failures.succeeded(_UNREADABLE, of=server, server=server)
        return answer

    def _lag(
        self,
        subscription_id: str,
        cursors: CommittedOffsets,
        ends: Iterable[tuple[Timelines, Sequence[Bounds]]],
        ranges: dict[str, Sequence[OffsetRanges]],
    ) -> Lag | None:
        """The lag of a subscription; None if nothing is known.

        Args:
            subscription_id: the subscription.
            cursors: its committed cursors; without any, the start that a stream would have counts.
            ends: the ends of its event types.
            ranges: the ranges of event types that were read before; those read now are added.
        """
        events: int | None = None
        lagging: dict[EventTypePartition, Lag] = {}
        since: dict[EventTypePartition, _FirstEvent] = {}
        known = self._since.get(subscription_id, {})
        starting = not cursors
        for timelines, bounds in ends:
            if starting:
                cursors = self._starts(subscription_id, timelines, ranges)
            newest = newest_in(timelines, [each.newest for each in bounds])
            for key, count in unconsumed_of(timelines, newest, cursors).items():
                events = (events or 0) + count
                if count:
                    found = self._first(key, timelines, bounds, cursors[key], known.get(key))
                    lagging[key] = Lag(count, found.stored_ms if found else None)
                    if found:
                        since[key] = found
        _keep(self._since, subscription_id, since)
        _keep(self.lagging, subscription_id, lagging)
        if events is None:
            return None
        stored_ms = [each.stored_ms for each in since.values() if each.stored_ms]
        nothing_ms = NEVER if len(since) == len(lagging) else None
        return Lag(events, min(stored_ms, default=nothing_ms))

    def _starts(
        self, subscription_id: str, timelines: Timelines, ranges: dict[str, Sequence[OffsetRanges]]
    ) -> CommittedOffsets:
        """The offsets at which a subscription that was never streamed would begin; empty if unknown for now."""
        name = timelines.event_type
        with suppress(NotFound):
            subscription = self._registry.subscription(subscription_id)
            if name not in ranges:
                ask = partial(offset_ranges_of, timelines, self._stores)
                ranges[name] = self._asked(timelines.active.storage_id, ask) or ()
            return start_offsets(subscription, name, ranges[name])
        return {}

    def _first(
        self,
        key: EventTypePartition,
        timelines: Timelines,
        bounds: Sequence[Bounds],
        committed: str,
        known: "_FirstEvent | None",
    ) -> "_FirstEvent | None":
        """The first unconsumed event of a partition; None if that is unknown."""
        number, place = int(key.partition), stored_place(committed)
        timeline, position = next(timelines.following(number, place))
        active = timeline is timelines.active
        if active and number < len(bounds):
            position = max(position, bounds[number].oldest)
        if known is not None and known.stored_ms and active and known[:2] == (timeline.topic, position):
            return known
        stored_ms = self._end_times.at_ms(timeline.topic, number, position) if active else None
        if stored_ms is None:
            try:
                stored_ms = recorded_at_ms_after(timelines, self._stores, number, place) or NEVER
            except (Unavailable, NotFound):
                return None
        return _FirstEvent(timeline.topic, position, stored_ms)

    def _set(self, subscription_id: str, lag: Lag | None) -> None:
        before = self.lags.pop(subscription_id, None)
        self.events += (lag.events if lag else 0) - (before.events if before else 0)
        if lag is not None:
            self.lags[subscription_id] = lag
        else:
            self._since.pop(subscription_id, None)
            self.lagging.pop(subscription_id, None)
            self._failed.discard(subscription_id)


def _keep(kept: dict[str, T], key: str, value: T) -> None:
    """Keep a value if it holds anything."""
    if value:
        kept[key] = value
    else:
        kept.pop(key, None)


class _FirstEvent(NamedTuple):
    """The first event after the cursor of a partition."""

    topic: str
    position: int
    stored_ms: int
    """`NEVER` if retention has removed it, and nothing follows."""
