"""Commands that change the timelines of an event type, and so the storage of its events.

Source: reference timelines#count-change, timelines#timeline-model, timelines#count-effects.

Queries to stores, and for the liveness of processes, run between transactions (see `Outside`). A switch has four steps:
record its start, create the new topic, record that the old topic is about to be closed, close it and record its end.
Until the third step the switch can be aborted without effect. From then on it can only be completed, by any process:
closing a topic is idempotent, and no topic is ever reopened. So a late close does no harm, and the recorded end stays
the end.
"""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from rioni.commands.timelines.topics import abandon
from rioni.commands.unit_of_work import Outside, UnitOfWork
from rioni.domain.errors import Conflict, FeatureDisabled, Invalid, InvalidFields, NotFound, RioniError, Unavailable
from rioni.domain.event_types.event_type import EventType, EventTypeChanged, Statistic
from rioni.domain.system.system_events import DEAD_LETTER_QUEUE
from rioni.domain.timelines.timeline import (
    Timeline,
    TimelineCleanedUp,
    TimelineCloseStarted,
    Timelines,
    TimelinesRepartitioned,
    TimelineSwitchAborted,
    TimelineSwitched,
    TimelineSwitchStarted,
)


INITIATOR_DIED = "the process that switched has died"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSwitch:
    """Start a switch to a new topic, in the same storage or another one."""

    event_type: str
    storage_id: str | None
    replaces: str | None = None
    """The id of the active timeline, to replace only that one, with any cleanup policy of its event type."""
    can_be_used: bool = False
    """Whether the storage has been opened; set by the command itself."""
    dead_worker: str | None = None
    """A process that is known to have died; set by the command itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseTimeline:
    """Close the old topic, after which the switch can only be completed; repeated to complete a switch."""

    event_type: str
    timeline: Timeline
    """The next timeline, whose topic was created."""
    deleted: bool = False
    """Whether that topic was deleted again."""
    then: Any = None
    """The command to run next, if the switch was started by another command and blocked it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteSwitch:
    """Store events in the new topic from now on."""

    event_type: str
    timeline: Timeline
    latest_position: tuple[int, ...] | None
    """The last positions of the old topic, which is closed; None if its storage does not know it."""
    then: Any = None
    """The command to run next, as in `CloseTimeline`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortSwitch:
    """Roll back a switch, unless it is past the point of no return."""

    event_type: str
    timeline: Timeline
    """The next timeline of the switch."""
    reason: str
    delete: bool = True
    """Whether to delete its topic at once; if not, a background job does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUpTimeline:
    """Remove the events of a closed timeline whose retention time is over."""

    event_type: str
    order: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """Add partitions to an event type."""

    event_type: str
    partition_count: int | None
    extended: Collection[str] = ()
    """The topics that have the new number of partitions already; set by the command itself."""
    dead_worker: str | None = None
    """A process that is known to have died, as in `StartSwitch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOrphanedTopics:
    """Find those of the given topics of a storage that the log does not name."""

    storage_id: str
    topics: Collection[str]
    """Existing topics, none of them named by a switch in progress: a switch is recorded before its topic is created."""


def start_switch(command: StartSwitch, unit_of_work: UnitOfWork) -> Outside | None:
    """Record the start of a switch, after aborting or completing one whose process died.

    Raises:
        EventTypeNotFound: there is no such event type.
        InvalidFields: no storage is named.
        Invalid: the storage does not exist, or the event type is compacted.
        Conflict: another switch is in progress.
        Unavailable: a storage can't be used.
    """
    event_type, context = unit_of_work.event_type(command.event_type), unit_of_work.context
    if command.storage_id is None:
        raise InvalidFields([("storage_id", "must not be null")])
    if unit_of_work.find("storage", command.storage_id) is None:
        raise Invalid(f"No storage with id: {command.storage_id}")
    if event_type.cleanup_policy != "delete" and command.replaces is None:
        raise Invalid(
            f"It is not possible to create a timeline for event type with '{event_type.cleanup_policy}' cleanup_policy"
        )
    timelines = unit_of_work.timelines(event_type.name)
    if command.replaces is not None and (timelines.switch is not None or timelines.active.id != command.replaces):
        return None  # the timeline to be replaced is no longer active, or soon will not be
    busy = Conflict(f"Timeline is already being created for: {event_type.name}")
    if (unfinished := _unfinished(command, timelines, unit_of_work, busy)) is not None:
        return unfinished
    if not command.can_be_used:
        return Outside(partial(_opened, command, unit_of_work))
    active = timelines.active
    timeline = Timeline(
        id=context.derive_id("timeline"),
        event_type=event_type.name,
        order=active.order + 1,
        storage_id=command.storage_id,
        topic=context.topic,
        partitions=active.partitions,
        created_at=context.now,
        switched_at=context.now,
    )
    unit_of_work.record(
        TimelineSwitchStarted(event_type=event_type.name, timeline=timeline, worker=unit_of_work.coordinator.worker)
    )

    def create() -> CloseTimeline:
        close = CloseTimeline(event_type=timeline.event_type, timeline=timeline)
        try:
            unit_of_work.stores.of(timeline.storage_id).create_topic(timeline.topic, timeline.partitions)
        except NotFound:
            return replace(close, deleted=True)  # its event type was deleted too, or the switch was aborted
        return close

    return Outside(create, partial(_aborted, timeline))


def close_timeline(command: CloseTimeline, unit_of_work: UnitOfWork) -> Outside | None:
    """Record that the old topic is about to be closed, and close it outside of the transaction.

    Raises:
        EventTypeNotFound: the event type was deleted meanwhile.
        Conflict: the switch was aborted, or the storage deleted meanwhile.
        Unavailable: the old topic can't be closed now; the switch is completed as soon as it can.
    """
    timelines, following = unit_of_work.timelines(command.event_type), command.timeline
    switch, active = timelines.switch, timelines.active
    if _is_recorded(following, timelines):
        return _go_on(command.then)  # another process has completed it
    if switch is None or switch.timeline != following or command.deleted:
        raise Conflict(f"The switch of {command.event_type} was aborted. Try again.")
    if not switch.closing:
        if unit_of_work.find("storage", following.storage_id) is None:
            raise Conflict(f"The storage {following.storage_id} was deleted meanwhile.")
        unit_of_work.record(TimelineCloseStarted(event_type=command.event_type, timeline_id=following.id))

    def close() -> CompleteSwitch:
        complete = partial(CompleteSwitch, event_type=command.event_type, timeline=following, then=command.then)
        try:
            held = unit_of_work.stores.of(active.storage_id).close_topic(active.topic)
        except NotFound:
            return complete(latest_position=None)  # the event type was deleted a moment ago
        return complete(latest_position=tuple(bounds.newest for bounds in held[: active.partitions]))

    return Outside(close)


def complete_switch(command: CompleteSwitch, unit_of_work: UnitOfWork) -> Outside | None:
    """Record the end of the old topic, and that events are stored in the new one.

    Raises:
        EventTypeNotFound: the event type was deleted meanwhile.
        Conflict: it was recreated meanwhile.
        Unavailable: the old topic is lost.
    """
    timelines = unit_of_work.timelines(command.event_type)
    if not _is_recorded(command.timeline, timelines):
        if timelines.switch is None or timelines.switch.timeline != command.timeline:
            raise Conflict(f"The event type {command.event_type} was deleted and recreated concurrently. Try again.")
        if command.latest_position is None:
            raise Unavailable(f"Topic {timelines.active.topic} of event type {command.event_type} is missing.")
        # The time is not that when the switch began: the old topic may have been written to until now, and is kept for
        # its full retention time from now.
        timeline = msgspec.structs.replace(command.timeline, switched_at=unit_of_work.context.now)
        unit_of_work.record(
            TimelineSwitched(event_type=command.event_type, timeline=timeline, latest_position=command.latest_position)
        )
    return _go_on(command.then)


def abort_switch(command: AbortSwitch, unit_of_work: UnitOfWork) -> None:
    """Record that a switch has failed; nothing happens if it is over, or can only be completed."""
    timelines: Timelines | None = unit_of_work.find("timeline", command.event_type)
    if timelines and timelines.switch and timelines.switch.timeline == command.timeline:
        if not timelines.switch.closing:
            _abort(timelines, command.reason, unit_of_work, delete=command.delete)
    elif timelines is None or not _is_recorded(command.timeline, timelines):
        # The process that switched may have created it after others had deleted it.
        abandon(command.timeline, unit_of_work, delete=command.delete)


def clean_up_timeline(command: CleanUpTimeline, unit_of_work: UnitOfWork) -> None:
    """Record that the events of a closed timeline are removed, and remove them; no-op if they are already.

    Also a no-op if the retention time was raised meanwhile.

    Raises:
        EventTypeNotFound: it was deleted meanwhile.
    """
    timelines = unit_of_work.timelines(command.event_type)
    retention_ms = unit_of_work.event_type(command.event_type).retention_ms
    for timeline in timelines.readable[:-1]:
        if timeline.order == command.order and timelines.is_over(timeline, retention_ms, command.now_ms):
            at = unit_of_work.context.now
            unit_of_work.record(TimelineCleanedUp(event_type=command.event_type, order=command.order, cleaned_up_at=at))
            abandon(timeline, unit_of_work)


def repartition(command: Repartition, unit_of_work: UnitOfWork) -> Outside | None:
    """Add partitions to all timelines; subscriptions get them by `CursorInitializer.extend`.

    Raises:
        FeatureDisabled: the feature `repartitioning` is off.
        EventTypeNotFound: there is no such event type.
        Invalid: the number is below the present one, or above the limit; or it is the dead letter queue.
        Unavailable: timelines are being switched, or a store can't write.
    """
    if "repartitioning" not in unit_of_work.settings().features:
        raise FeatureDisabled("Repartitioning is disabled. Switch on the feature repartitioning.")
    event_type, count = unit_of_work.event_type(command.event_type), command.partition_count
    if event_type.name == DEAD_LETTER_QUEUE:
        raise Invalid(f"Repartitioning {DEAD_LETTER_QUEUE} event type is not supported")
    if count is None:
        raise InvalidFields([("partition_count", "must not be null")])
    timelines, most = unit_of_work.timelines(event_type.name), unit_of_work.limits.partitions_max
    if count < timelines.active.partitions:
        raise Invalid("Number of partitions can not decrease")
    if count > max(most, timelines.active.partitions):
        raise Invalid(f"Number of partitions should not be more than {most}")
    busy = Unavailable(f"Event type {event_type.name} is currently in maintenance, please repeat request")
    if (unfinished := _unfinished(command, timelines, unit_of_work, busy)) is not None:
        return unfinished
    if count > timelines.active.partitions:
        # The partitions are created first: empty ones that the log does not know are harmless, and need no record.
        if left := [each for each in timelines.readable if each.topic not in command.extended]:
            return Outside(partial(_extended, command, left, count, unit_of_work))
        unit_of_work.record(TimelinesRepartitioned(event_type=event_type.name, partitions=count))
    wanted = _with_parallelism(event_type, count)
    if wanted != event_type:
        changed = msgspec.structs.replace(wanted, updated_at=unit_of_work.context.now)
        unit_of_work.record(EventTypeChanged(name=event_type.name, event_type=changed))
    return None


def find_orphaned_topics(command: FindOrphanedTopics, unit_of_work: UnitOfWork) -> list[str]:
    """The topics that may be deleted if they are empty.

    The creation of a topic is recorded before. So an existing topic that the log does not name never will be named.
    """
    unknown = set(command.topics) - unit_of_work.topics_in(command.storage_id)
    return sorted(topic for topic in unknown if unit_of_work.find("topic-creation", topic) is None)


def _opened(command: StartSwitch, unit_of_work: UnitOfWork) -> StartSwitch:
    assert command.storage_id is not None
    unit_of_work.stores.of(command.storage_id)
    return replace(command, can_be_used=True)


def _extended(command: Repartition, timelines: Sequence[Timeline], count: int, unit_of_work: UnitOfWork) -> Repartition:
    extended = list(command.extended)
    for timeline in timelines:
        with contextlib.suppress(NotFound):  # it was cleaned up a moment ago
            unit_of_work.stores.of(timeline.storage_id).extend_topic(timeline.topic, count)
            extended.append(timeline.topic)
    return replace(command, extended=extended)


def _with_parallelism(event_type: EventType, count: int) -> EventType:
    known = event_type.default_statistic
    statistic = Statistic(
        messages_per_minute=known.messages_per_minute if known else 1,
        message_size=known.message_size if known else 1,
        read_parallelism=count,
        write_parallelism=count,
    )
    return msgspec.structs.replace(event_type, default_statistic=statistic)


def _unfinished(
    command: StartSwitch | Repartition, timelines: Timelines, unit_of_work: UnitOfWork, busy: RioniError
) -> Outside | None:
    """Handle a switch in progress: return the work to do first; None if there is none, or it has been aborted here.

    Args:
        command: the command that it blocks.
        timelines: the timelines of the event type.
        unit_of_work: the unit of work of the command.
        busy: raised outside of the transaction if the process that switches is alive.
    """
    switch = timelines.switch
    if switch is None:
        return None
    if switch.worker != command.dead_worker:

        def look() -> StartSwitch | Repartition:
            if unit_of_work.coordinator.is_alive(switch.worker):
                raise busy
            return replace(command, dead_worker=switch.worker)

        return Outside(look)
    if switch.closing:
        following = CloseTimeline(event_type=timelines.event_type, timeline=switch.timeline, then=command)
        return close_timeline(following, unit_of_work)
    _abort(timelines, INITIATOR_DIED, unit_of_work)
    return None


def _abort(timelines: Timelines, reason: str, unit_of_work: UnitOfWork, *, delete: bool = True) -> None:
    switch = timelines.switch
    assert switch is not None
    assert not switch.closing, "events may be refused already, and only the next timeline takes them"
    unit_of_work.record(
        TimelineSwitchAborted(event_type=timelines.event_type, timeline_id=switch.timeline.id, reason=reason)
    )
    # Not now: an unreachable storage must not prevent publishing to the present timeline.
    abandon(switch.timeline, unit_of_work, delete=delete)


def _aborted(timeline: Timeline, ex: BaseException) -> AbortSwitch:
    return AbortSwitch(
        event_type=timeline.event_type,
        timeline=timeline,
        reason=str(ex) or type(ex).__name__,
        # A store that has just timed out would make the client wait again.
        delete=not isinstance(ex, Unavailable),
    )


def _is_recorded(timeline: Timeline, timelines: Timelines) -> bool:
    return any(each.id == timeline.id for each in timelines.timelines)


def _go_on(then: Any) -> Outside | None:
    return None if then is None else Outside(lambda: then)


def topics_to_delete(timelines: Timelines) -> Sequence[Timeline]:
    """The timelines whose topics are deleted with the event type, the next one of a switch included."""
    return [*timelines.readable, *([timelines.switch.timeline] if timelines.switch else [])]
