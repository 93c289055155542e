"""Timelines: the mapping of offsets of an event type to topics of storages (reference timelines#timeline-model)."""

from collections.abc import Iterator, Sequence

import msgspec

from rioni.domain.events import DomainEvent
from rioni.domain.timelines.position import BEFORE_FIRST, TimelinePosition
from rioni.domain.timelines.topics import DigestedBlock
from rioni.domain.timestamps import milliseconds


FIRST_ORDER = 1


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """The binding of an event type to a topic, from `switched_at` on."""

    id: str
    event_type: str
    order: int
    storage_id: str
    topic: str
    partitions: int
    created_at: str
    switched_at: str
    cleaned_up_at: str | None = None
    """When its events were removed; None while they exist."""
    latest_position: tuple[int, ...] | None = None
    """The last position of each partition; None while the timeline is active."""


class Switch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A switch in progress."""

    timeline: Timeline
    """The next one."""
    worker: str
    """The process that runs it; if it dies, others abort the switch, or complete it if it is closing."""
    closing: bool = False
    """Whether the topic of the active timeline may be closed already: any process may complete the switch then."""


class Timelines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All timelines of one event type, by order; the last one is active."""

    event_type: str
    timelines: tuple[Timeline, ...]
    switch: Switch | None = None
    digested: dict[int, tuple[int, ...]] = {}
    """Digested positions of closed timelines, by order: for each partition, the position up to which the log has
    digests of its records."""

    @property
    def active(self) -> Timeline:
        """The timeline that is written to."""
        return self.timelines[-1]

    @property
    def readable(self) -> Sequence[Timeline]:
        """The timelines whose events have not been cleaned up, by order; the active one is always among them."""
        return [timeline for timeline in self.timelines if timeline.cleaned_up_at is None]

    def closed_at(self, timeline: Timeline) -> str | None:
        """When a timeline was closed: when the next one was switched to; None for the active one."""
        return next((each.switched_at for each in self.timelines if each.order > timeline.order), None)

    def undigested(self, timeline: Timeline) -> dict[int, range]:
        """The positions of a closed timeline that the log has no digests of, by partition; none while it is active."""
        done, latest = self.digested.get(timeline.order, ()), timeline.latest_position or ()
        firsts = [*done, *[0] * (len(latest) - len(done))]
        return {number: range(firsts[number], end + 1) for number, end in enumerate(latest) if firsts[number] <= end}

    def is_over(self, timeline: Timeline, retention_ms: int | None, now_ms: int) -> bool:
        """Whether a timeline was closed so long ago that all its events are too old; None: they never are."""
        closed_at = self.closed_at(timeline)
        return closed_at is not None and retention_ms is not None and milliseconds(closed_at) + retention_ms < now_ms

    def following(self, number: int, after: TimelinePosition) -> Iterator[tuple[Timeline, int]]:
        """The timelines to read for the events after a place in a partition: by order, each with its first position."""
        for timeline in self.timelines:
            if timeline.order < after.order or timeline.cleaned_up_at is not None:
                continue
            first = after.position + 1 if timeline.order == after.order else 0
            if timeline.latest_position is None or first <= timeline.latest_position[number]:
                yield timeline, first

    def distance(self, number: int, initial: TimelinePosition, final: TimelinePosition) -> int:
        """How many events a partition ever had after a place, up to and including a later one."""
        lengths = (
            each.latest_position[number] + 1
            for each in self.timelines
            if initial.order <= each.order < final.order and each.latest_position is not None
        )
        return sum(lengths) + final.position - initial.position

    def is_beyond_end(self, place: TimelinePosition, newest: TimelinePosition) -> bool:
        """Whether a committed position lies beyond the last event, so that nothing is delivered until events pass it.

        Args:
            place: the last place read.
            newest: the place of the partition's last event, as `newest` returns it.
        """
        return place > self._end(newest)

    def unconsumed(self, number: int, committed: TimelinePosition, newest: TimelinePosition) -> int:
        """How many events of a partition follow a committed place, those that are gone included; 0 beyond the end."""
        for timeline in self.timelines:
            if timeline.order == committed.order and timeline.latest_position is not None:
                # Clients may have committed more than the timeline held when it was closed.
                committed = TimelinePosition(committed.order, min(committed.position, timeline.latest_position[number]))
        return max(0, self.distance(number, committed, self._end(newest)))

    def _end(self, newest: TimelinePosition) -> TimelinePosition:
        """The place after which the next events are written: always in the active timeline."""
        order = self.active.order
        return newest if newest.order == order else TimelinePosition(order, BEFORE_FIRST)

    def newest(self, number: int, position: int) -> TimelinePosition:
        """The place of the last event of a partition, given the last position in the active timeline."""
        if position > BEFORE_FIRST:
            return TimelinePosition(self.active.order, position)
        closed = self.readable[:-1]
        for timeline in reversed(closed):
            if timeline.latest_position and timeline.latest_position[number] > BEFORE_FIRST:
                return TimelinePosition(timeline.order, timeline.latest_position[number])
        return TimelinePosition(self.readable[0].order, BEFORE_FIRST)


class TimelineOpened(DomainEvent, frozen=True, kw_only=True):
    """A timeline was created and is active."""

    TOPIC = "timeline.opened"
    KEY = "event_type"

    event_type: str
    timeline: Timeline


class TimelineSwitchStarted(DomainEvent, frozen=True, kw_only=True):
    """A switch was started; publishers may have to wait for its end."""

    TOPIC = "timeline.switch-started"
    KEY = "event_type"

    event_type: str
    timeline: Timeline
    """The next one, as it will be if all goes well."""
    worker: str


class TimelineCloseStarted(DomainEvent, frozen=True, kw_only=True):
    """The next timeline is ready and the topic of the active one is about to be closed: the point of no return."""

    TOPIC = "timeline.close-started"
    KEY = "event_type"

    event_type: str
    timeline_id: str
    """The id of the next timeline."""


class TimelineSwitched(DomainEvent, frozen=True, kw_only=True):
    """The active timeline is closed for good, and events are stored in another one from now on."""

    TOPIC = "timeline.switched"
    KEY = "event_type"

    event_type: str
    timeline: Timeline
    latest_position: tuple[int, ...]
    """The last position of each partition of the closed timeline."""


class TimelineSwitchAborted(DomainEvent, frozen=True, kw_only=True):
    """A switch was aborted: events are stored in the same timeline as before it."""

    TOPIC = "timeline.switch-aborted"
    KEY = "event_type"

    event_type: str
    timeline_id: str
    reason: str


class TimelineCleanedUp(DomainEvent, frozen=True, kw_only=True):
    """The events of a closed timeline were deleted: their retention time is over."""

    TOPIC = "timeline.cleaned-up"
    KEY = "event_type"

    event_type: str
    order: int
    cleaned_up_at: str


class TimelineDigested(DomainEvent, frozen=True, kw_only=True):
    """Records of a closed timeline were read, and their digests were recorded."""

    TOPIC = "timeline.digested"
    KEY = "event_type"

    event_type: str
    order: int
    storage: str
    topic: str
    blocks: tuple[DigestedBlock, ...]
    next: tuple[int, ...]
    """The position of each partition up to which all records are in a block, or had expired."""


class TimelinesRepartitioned(DomainEvent, frozen=True, kw_only=True):
    """The event type has more partitions from now on, in all timelines; the new ones of closed timelines are empty."""

    TOPIC = "timeline.repartitioned"
    KEY = "event_type"

    event_type: str
    partitions: int


class TimelinesDeleted(DomainEvent, frozen=True, kw_only=True):
    """The event type was deleted, with its events."""

    TOPIC = "timeline.deleted"
    KEY = "event_type"

    event_type: str


def evolve(state: Timelines | None, event: DomainEvent) -> Timelines | None:
    """The state after an event; total."""
    match event:
        case TimelineOpened(event_type=name, timeline=timeline):
            return Timelines(event_type=name, timelines=(*(state.timelines if state else ()), timeline))
        case TimelinesDeleted():
            return None
        case _:
            return None if state is None else _changed(state, event)


def _changed(state: Timelines, event: DomainEvent) -> Timelines:
    change = msgspec.structs.replace
    match event:
        case TimelineSwitchStarted() | TimelineCloseStarted() | TimelineSwitchAborted():
            return change(state, switch=_switch(state.switch, event))
        case TimelineSwitched(timeline=timeline, latest_position=latest):
            closed = change(state.active, latest_position=latest)
            return change(state, timelines=(*state.timelines[:-1], closed, timeline), switch=None)
        case TimelineCleanedUp(order=order, cleaned_up_at=at):
            timelines = (change(each, cleaned_up_at=at) if each.order == order else each for each in state.timelines)
            digested = {each: positions for each, positions in state.digested.items() if each != order}
            return change(state, timelines=tuple(timelines), digested=digested)
        case TimelineDigested(order=order, next=positions):
            return change(state, digested=state.digested | {order: positions})
        case TimelinesRepartitioned(partitions=partitions):
            return change(state, timelines=tuple(_repartitioned(each, partitions) for each in state.timelines))
        case _:
            return state


def _switch(switch: Switch | None, event: DomainEvent) -> Switch | None:
    match event:
        case TimelineSwitchStarted(timeline=timeline, worker=worker):
            return Switch(timeline=timeline, worker=worker)
        case TimelineCloseStarted() if switch is not None:
            return msgspec.structs.replace(switch, closing=True)
        case _:
            return None


def _repartitioned(timeline: Timeline, partitions: int) -> Timeline:
    latest = timeline.latest_position
    if latest is not None:
        latest += (BEFORE_FIRST,) * (partitions - len(latest))
    return msgspec.structs.replace(timeline, partitions=partitions, latest_position=latest)


# --- One-line descriptions of timeline changes for the audit trail ---
#
# Source: reference timelines#timeline-model.


def describe_change(topic: str, before: Timelines | None, after: Timelines | None) -> str:
    """Describe the effect of a change of timelines.

    Args:
        topic: the topic of the domain event.
        before: the timelines before it.
        after: the timelines after it.
    """
    text = ""
    match topic, before, after:
        case "timeline.opened", _, Timelines(active=active):
            text = f"begins in {_place(active)}, partitions: {active.partitions}"
        case "timeline.switch-started", _, Timelines(active=active, switch=switch) if switch:
            text = f"is to go on from {_place(active)} to {_place(switch.timeline)}"
        case "timeline.close-started", _, Timelines(active=active):
            text = f"is about to end in {_place(active)}"
        case "timeline.switched", Timelines(active=old), Timelines(timelines=timelines, active=active):
            ends = ", ".join(map(str, timelines[-2].latest_position or ()))
            text = f"goes on in {_place(active)}; {_place(old)} ends at {ends}"
        case "timeline.switch-aborted", Timelines(active=active, switch=switch), _ if switch:
            text = f"stays in {_place(active)}; {_place(switch.timeline)} is not used"
        case "timeline.cleaned-up", Timelines(readable=old), Timelines(readable=left):
            gone = [_place(each) for each in old if all(each.id != other.id for other in left)]
            text = f"has lost the events of {', '.join(gone)} to retention"
        case "timeline.digested", Timelines(digested=old), Timelines(digested=new, timelines=timelines):
            read = [_place(each) for each in timelines if old.get(each.order) != new.get(each.order)]
            text = f"has digests of the records of {', '.join(read)}"
        case "timeline.repartitioned", Timelines(active=old), Timelines(active=new):
            text = f"has {new.partitions} partitions instead of {old.partitions}"
        case "timeline.deleted", Timelines(readable=old), _:
            text = f"is gone, and with it {', '.join(map(_place, old))}"
    return text


def _place(timeline: Timeline) -> str:
    return f"timeline {timeline.order} (storage {timeline.storage_id})"
