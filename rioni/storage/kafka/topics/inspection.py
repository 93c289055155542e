"""Reads a Kafka cluster's id, topics and end offsets; changes nothing."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_END, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.client import Connection, translate_errors
from rioni.storage.kafka.topics.admin import Admin


PARTITIONS_MAX = 10_000
"""Maximum number of partitions per request."""


class Inspected(NamedTuple):
    """The state of a cluster."""

    cluster_id: str
    partitions: Mapping[str, int]
    """The number of partitions of each requested topic that exists."""
    ends: Mapping[str, Mapping[int, int]]
    """The next position by topic and partition. Partitions currently without a leader are missing."""


def inspect(
    connection: Connection, topics: Collection[str], ended: Collection[str], *, reach_s: float, timeout_s: float
) -> Inspected:
    """Read the state of topics; blocks until the timeouts at most.

    Args:
        connection: how to reach the brokers.
        topics: those to look up.
        ended: those of them whose end positions are wanted.
        reach_s: timeout of the first answer, in seconds.
        timeout_s: timeout of all further answers together, in seconds.

    Raises:
        Unavailable: no broker answers in time, or the request is rejected.
    """
    admin = Admin(connection)
    metadata = translate_errors(lambda: admin.metadata(timeout_s=reach_s), "")
    deadline_s = time.monotonic() + timeout_s
    prefix = connection.topic_prefix
    partitions = {
        topic: len(metadata.topics[prefix + topic].partitions) for topic in topics if prefix + topic in metadata.topics
    }
    wanted = [
        TopicPartition(prefix + topic, number, OFFSET_END)
        for topic in ended
        for number in range(partitions.get(topic, 0))
    ]
    ends: dict[str, dict[int, int]] = {}
    for first in range(0, len(wanted), PARTITIONS_MAX):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Unavailable(f"Timed out after {timeout_s:g} s reading the end offsets of all topics from Kafka.")
        answers = _answers(admin, wanted[first : first + PARTITIONS_MAX], left_s)
        for place, answer in answers.items():
            # Errors and negative offsets mean that the end is currently unknown.
            if isinstance(offset := getattr(answer, "offset", None), int) and offset >= 0:
                ends.setdefault(place.topic.removeprefix(prefix), {})[place.partition] = offset
    return Inspected(str(metadata.cluster_id), partitions, ends)


def _answers(admin: Admin, places: list[TopicPartition], timeout_s: float) -> Mapping[TopicPartition, object]:
    def ask() -> Mapping[TopicPartition, object]:
        found: Mapping[TopicPartition, object] = admin.begin("list_offsets", places, timeout_s=timeout_s).outcomes()
        return found

    return translate_errors(ask, "")
