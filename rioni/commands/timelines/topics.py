"""Topics of timelines: their creation for new event types, and their deletion, in steps that the log records."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from rioni.commands.unit_of_work import Outside, UnitOfWork
from rioni.config.logs import FailureLog
from rioni.domain.errors import Conflict, NotFound, RioniError, Unavailable
from rioni.domain.timelines.timeline import Timeline, Timelines
from rioni.domain.timelines.topics import (
    TopicAbandoned,
    TopicCreation,
    TopicCreationEnded,
    TopicCreationStarted,
    TopicDeleted,
)


# --- Deletes topics in two steps: records the intent in the command's transaction, deletes afterwards ---
#
# So a command that fails deletes nothing, and a topic that could not be deleted, because a process died or a storage
# was out of reach, is deleted later.

_failures = FailureLog(structlog.get_logger("rioni.topics"))

_NOT_DELETED = "could not delete a topic; the background job will retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTopicsDeleted:
    """Record that abandoned topics were deleted."""

    topics: Collection[str]


def abandon(owner: Timeline | TopicCreation, unit_of_work: UnitOfWork, *, delete: bool = True) -> None:
    """Record that the topic of a timeline, existing or never recorded, is to be deleted.

    Args:
        owner: the timeline or topic creation.
        unit_of_work: the unit of work of the command.
        delete: whether to try it right after the commit.
    """
    unit_of_work.record(TopicAbandoned(topic=owner.topic, storage_id=owner.storage_id, event_type=owner.event_type))
    if delete:
        unit_of_work.after_commit.append(partial(_delete, owner, unit_of_work))


def record_topics_deleted(command: RecordTopicsDeleted, unit_of_work: UnitOfWork) -> None:
    """Record which topics were deleted, except those already recorded."""
    for topic in sorted(command.topics):
        if unit_of_work.find("topic", topic) is not None:
            unit_of_work.record(TopicDeleted(topic=topic))


def _delete(owner: Timeline | TopicCreation, unit_of_work: UnitOfWork) -> None:
    try:
        unit_of_work.stores.of(owner.storage_id).delete_topic(owner.topic)
    except RioniError as ex:
        _failures.failed(_NOT_DELETED, ex, of=owner.storage_id, topic=owner.topic)
    else:
        _failures.succeeded(_NOT_DELETED, of=owner.storage_id)


# --- Creates the first topic of a new event type: records the intent, creates, records the outcome ---
#
# Stores are never called while the head of the log is locked. So the topic exists before its event type does, and the
# record of its creation lets another process clean it up after a crash.


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonTopicCreation:
    """Roll back the creation of a topic whose event type will not be recorded any more."""

    creation: TopicCreation
    delete: bool = True
    """Whether to delete the topic at once; if not, a background job does."""


def start_topic_creation(timeline: Timeline, unit_of_work: UnitOfWork, then: Callable[[], Any]) -> Outside:
    """Record that the topic of a timeline is about to be created, and create it outside of the transaction.

    Args:
        timeline: the first one of an event type that does not exist yet.
        unit_of_work: the unit of work of the command.
        then: returns the next command, run when the topic exists.
    """
    creation = TopicCreation(
        topic=timeline.topic,
        storage_id=timeline.storage_id,
        event_type=timeline.event_type,
        worker=unit_of_work.coordinator.worker,
    )
    unit_of_work.record(
        TopicCreationStarted(
            topic=creation.topic,
            storage_id=creation.storage_id,
            event_type=creation.event_type,
            worker=creation.worker,
        )
    )

    def create() -> Any:
        try:
            unit_of_work.stores.of(timeline.storage_id).create_topic(timeline.topic, timeline.partitions)
        except NotFound as ex:
            raise Unavailable(
                f"The topic of event type {timeline.event_type} was deleted while it was being created. Try again."
            ) from ex
        return then()

    return Outside(create, partial(_taken_back, creation))


def end_topic_creation(timeline: Timeline, unit_of_work: UnitOfWork) -> None:
    """Record that the topic exists; the command records in the same transaction that it belongs to the timeline.

    Raises:
        Unavailable: the creation took so long that another process has abandoned it.
        Conflict: the storage was deleted meanwhile.
    """
    if unit_of_work.find("topic-creation", timeline.topic) is None:
        raise Unavailable(
            f"The creation of event type {timeline.event_type} was aborted, because its process was considered dead. "
            "Try again."
        )
    if unit_of_work.find("storage", timeline.storage_id) is None:
        raise Conflict(f"The storage {timeline.storage_id} was deleted meanwhile.")
    unit_of_work.record(TopicCreationEnded(topic=timeline.topic))


def abandon_topic_creation(command: AbandonTopicCreation, unit_of_work: UnitOfWork) -> None:
    """Record that a topic is to be deleted, unless it belongs to a timeline by now."""
    creation = command.creation
    if unit_of_work.find("topic-creation", creation.topic) is not None:
        unit_of_work.record(TopicCreationEnded(topic=creation.topic))
    elif _belongs_to_timeline(creation, unit_of_work):
        return
    # Even if another process has abandoned it already: it may have been created after that one deleted it.
    abandon(creation, unit_of_work, delete=command.delete)


def _belongs_to_timeline(creation: TopicCreation, unit_of_work: UnitOfWork) -> bool:
    timelines: Timelines | None = unit_of_work.find("timeline", creation.event_type)
    return timelines is not None and any(each.topic == creation.topic for each in timelines.timelines)


def _taken_back(creation: TopicCreation, ex: BaseException) -> AbandonTopicCreation:
    # A store that has just timed out would make the client wait again.
    return AbandonTopicCreation(creation=creation, delete=not isinstance(ex, Unavailable))
