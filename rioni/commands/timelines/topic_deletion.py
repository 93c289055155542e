"""Deletes topics in two steps: records the intent in the command's transaction, deletes afterwards.

So a command that fails deletes nothing, and a topic that could not be deleted, because a process died or a storage was
out of reach, is deleted later.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import structlog

from rioni.commands.unit_of_work import UnitOfWork
from rioni.config.failures import FailureLog
from rioni.domain.errors import RioniError
from rioni.domain.timelines.timeline import Timeline
from rioni.domain.timelines.topic_creation import TopicCreation
from rioni.domain.timelines.topic_deletion import TopicAbandoned, TopicDeleted


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
        unit_of_work: of the command.
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
