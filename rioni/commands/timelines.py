"""Commands that change where an event type's events are stored (registry contract 7.7 and 8, consumption 11 and 12).

A switch takes several commands, because stores have to be asked in between: `rioni.commands.switching` gives them. Each
of them leaves the log such that whoever comes next knows what to do.
"""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from rioni.commands.abandoned_topics import abandon
from rioni.commands.repository import Repository
from rioni.domain.cursor import BEFORE_FIRST
from rioni.domain.errors import Conflict, Disabled, Invalid, InvalidFields, NotFound, Unavailable
from rioni.domain.event_type import EventType, EventTypeChanged, Statistic
from rioni.domain.own_event_types import DEAD_LETTER_QUEUE
from rioni.domain.timeline import (
    Timeline,
    TimelineCleanedUp,
    Timelines,
    TimelinesRepartitioned,
    TimelineSwitchAborted,
    TimelineSwitched,
    TimelineSwitchStarted,
)


INITIATOR_DIED = "the process that switched has died"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartSwitch:
    """Prepare that events are stored in a new topic, of a storage that may be another one."""

    event_type: str
    storage_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteSwitch:
    """Close the old topic, and store events in the new one from now on."""

    event_type: str
    timeline: Timeline
    """As `StartSwitch` returned it; its topic must have been made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortSwitch:
    """Go on as if the switch had never been started."""

    event_type: str
    timeline: Timeline
    """As `StartSwitch` returned it."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanUpTimeline:
    """Remove the events of a closed timeline, if its time is over."""

    event_type: str
    order: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartition:
    """Let an event type have more partitions."""

    event_type: str
    partition_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteForsakenTopics:
    """Delete those of some topics that are empty and that no timeline names."""

    storage_id: str
    topics: Collection[str]
    """No switch that is under way names them: it would have been recorded before they were made."""


def start_switch(command: StartSwitch, repository: Repository) -> Timeline:
    """Record that a switch has begun; one whose process has died is aborted.

    Returns:
        The next timeline, whose topic does not exist yet.

    Raises:
        EventTypeNotFound: there is no such event type.
        InvalidFields: no storage is named.
        Invalid: the storage does not exist, or the event type is compacted.
        Conflict: a switch is under way already.
        Unavailable: the storage can't be used.
    """
    event_type, context = repository.event_type(command.event_type), repository.context
    if command.storage_id is None:
        raise InvalidFields([("storage_id", "must not be null")])
    if repository.find("storage", command.storage_id) is None:
        raise Invalid(f"No storage with id: {command.storage_id}")
    if event_type.cleanup_policy != "delete":
        raise Invalid(
            f"It is not possible to create a timeline for event type with '{event_type.cleanup_policy}' cleanup_policy"
        )
    timelines = repository.timelines(event_type.name)
    if _is_switched(timelines, repository):
        raise Conflict(f"Timeline is already being created for: {event_type.name}")
    active = timelines.active
    repository.stores.of(command.storage_id)  # can it be used?
    timeline = Timeline(
        id=context.derive_id("timeline"),
        event_type=event_type.name,
        order=active.order + 1,
        storage_id=command.storage_id,
        topic=context.derive_id("topic"),
        partitions=active.partitions,
        created_at=context.now,
        switched_at=context.now,
    )
    repository.record(
        TimelineSwitchStarted(event_type=event_type.name, timeline=timeline, worker=repository.coordinator.worker)
    )
    return timeline


def complete_switch(command: CompleteSwitch, repository: Repository) -> None:
    """Close the old topic and record that events are stored in the new one.

    Raises:
        EventTypeNotFound: the event type was deleted meanwhile.
        Conflict: the switch was aborted, or the storage deleted meanwhile.
        Unavailable: the old topic can't be closed.
    """
    timelines = repository.timelines(command.event_type)
    switch, active = timelines.switch, timelines.active
    if switch is None or switch.timeline != command.timeline:
        raise Conflict(f"The switch of {command.event_type} was aborted. Try again.")
    if repository.find("storage", command.timeline.storage_id) is None:
        raise Conflict(f"The storage {command.timeline.storage_id} was deleted meanwhile.")
    # In the transaction that makes it the past, and not before: topics are opened again by transactions alone, so none
    # does so behind what was looked at; and who was taken for dead, and has lost its switch, closes nothing.
    held = repository.stores.of(active.storage_id).close_topic(active.topic)
    latest = tuple(bounds.newest for bounds in held[: active.partitions])
    repository.record(
        TimelineSwitched(event_type=command.event_type, timeline=command.timeline, latest_position=latest)
    )


def abort_switch(command: AbortSwitch, repository: Repository) -> None:
    """Record that a switch has failed and take back its effects; nothing happens if it is over."""
    timelines: Timelines | None = repository.find("timeline", command.event_type)
    if timelines and timelines.switch and timelines.switch.timeline == command.timeline:
        _abort(timelines, command.reason, repository)
    elif timelines is None or all(each.id != command.timeline.id for each in timelines.timelines):
        if timelines is not None:
            # Whoever switched may have closed it, slowly, while others took that for a failure and opened it again.
            repository.stores.of(timelines.active.storage_id).reopen_topic(timelines.active.topic)
        # Whoever switched may have made it after others had deleted it.
        abandon(command.timeline, repository)


def clean_up_timeline(command: CleanUpTimeline, repository: Repository) -> None:
    """Record that the events of a closed timeline are gone, and remove them; nothing happens if they are.

    Nor if they shall stay longer since a moment ago.

    Raises:
        EventTypeNotFound: it was deleted meanwhile.
    """
    timelines = repository.timelines(command.event_type)
    retention_ms = repository.event_type(command.event_type).kept_ms
    for timeline in timelines.readable[:-1]:
        if timeline.order == command.order and timelines.is_over(timeline, retention_ms, command.now_ms):
            at = repository.context.now
            repository.record(TimelineCleanedUp(event_type=command.event_type, order=command.order, cleaned_up_at=at))
            abandon(timeline, repository)


def repartition(command: Repartition, repository: Repository) -> None:
    """Add partitions to all timelines; subscriptions get them by `Positions.extend`.

    Raises:
        Disabled: the feature `repartitioning` is off.
        EventTypeNotFound: there is no such event type.
        Invalid: the number is below the present one, or above the limit; or it is the dead letter queue.
        Unavailable: timelines are being switched, or a store can't write.
    """
    if "repartitioning" not in repository.settings().features:
        raise Disabled("Repartitioning is disabled. Switch on the feature repartitioning.")
    event_type, count = repository.event_type(command.event_type), command.partition_count
    if event_type.name == DEAD_LETTER_QUEUE:
        raise Invalid(f"Repartitioning {DEAD_LETTER_QUEUE} event type is not supported")
    if count is None:
        raise InvalidFields([("partition_count", "must not be null")])
    timelines, most = repository.timelines(event_type.name), repository.limits.partitions_max
    if count < timelines.active.partitions:
        raise Invalid("Number of partitions can not decrease")
    if count > max(most, timelines.active.partitions):
        raise Invalid(f"Number of partitions should not be more than {most}")
    if _is_switched(timelines, repository):
        raise Unavailable(f"Event type {event_type.name} is currently in maintenance, please repeat request")
    if count > timelines.active.partitions:
        # The partitions come first: empty ones that nobody knows of are harmless.
        for timeline in timelines.readable:
            repository.stores.of(timeline.storage_id).extend_topic(timeline.topic, count)
        repository.record(TimelinesRepartitioned(event_type=event_type.name, partitions=count))
    wanted = _with_parallelism(event_type, count)
    if wanted != event_type:
        changed = msgspec.structs.replace(wanted, updated_at=repository.context.now)
        repository.record(EventTypeChanged(name=event_type.name, event_type=changed))


def delete_forsaken_topics(command: DeleteForsakenTopics, repository: Repository) -> Sequence[str]:
    """Delete topics, and return which ones.

    An event type's first topic is made by the transaction that records it. No other one runs beside this one, so that
    what has no timeline now never will.
    """
    store = repository.stores.of(command.storage_id)
    deleted = []
    for topic in sorted(set(command.topics) - repository.topics_in(command.storage_id)):
        with contextlib.suppress(NotFound):  # another process was faster
            if all(bounds.newest == BEFORE_FIRST for bounds in store.bounds(topic)):
                store.delete_topic(topic)
                deleted.append(topic)
    return deleted


def _with_parallelism(event_type: EventType, count: int) -> EventType:
    known = event_type.default_statistic
    statistic = Statistic(
        messages_per_minute=known.messages_per_minute if known else 1,
        message_size=known.message_size if known else 1,
        read_parallelism=count,
        write_parallelism=count,
    )
    return msgspec.structs.replace(event_type, default_statistic=statistic)


def _is_switched(timelines: Timelines, repository: Repository) -> bool:
    """Whether a switch is under way; one whose process has died is aborted."""
    if timelines.switch is None:
        return False
    if repository.coordinator.lives(timelines.switch.worker):
        return True
    _abort(timelines, INITIATOR_DIED, repository)
    return False


def _abort(timelines: Timelines, reason: str, repository: Repository) -> None:
    switch, active = timelines.switch, timelines.active
    assert switch is not None
    # The effect comes first, and may come again: a topic that is open while the log says otherwise harms nobody.
    repository.stores.of(active.storage_id).reopen_topic(active.topic)
    repository.record(
        TimelineSwitchAborted(event_type=timelines.event_type, timeline_id=switch.timeline.id, reason=reason)
    )
    # Not now: that its storage may be out of reach must not keep the event type from going on where it is.
    abandon(switch.timeline, repository)


def topics_to_delete(timelines: Timelines) -> Sequence[Timeline]:
    """The timelines whose topics go with their event type, the next one of a switch included."""
    return [*timelines.readable, *([timelines.switch.timeline] if timelines.switch else [])]
