"""Reads a Kafka cluster's id, topics and end offsets; changes nothing."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_END, TopicPartition

from rioni.domain.errors import Unavailable
from rioni.storage.kafka.admin import Admin
from rioni.storage.kafka.client import Connection, asked


PARTITIONS_MAX = 10_000
"""So many partitions are asked about at once."""


class Inspected(NamedTuple):
    """What a cluster says about itself."""

    cluster_id: str
    partitions: Mapping[str, int]
    """The number of partitions of each topic that is there, of those that were asked about."""
    ends: Mapping[str, Mapping[int, int]]
    """For each topic and partition the position of the next event. Partitions that have no leader now are left out."""


def inspect(
    connection: Connection, topics: Collection[str], ended: Collection[str], *, reach_s: float, timeout_s: float
) -> Inspected:
    """Ask a cluster about topics; blocks until the time-outs at most.

    Args:
        connection: where the brokers are.
        topics: those to look for.
        ended: those of them whose ends are wanted.
        reach_s: how long the first answer may take, in seconds.
        timeout_s: how long all further ones may take together, in seconds.

    Raises:
        Unavailable: no broker answers in time, or it refuses.
    """
    admin = Admin(connection)
    metadata = asked(lambda: admin.metadata(timeout_s=reach_s), "")
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
            # Errors and negative numbers mean that there is no answer now.
            if isinstance(offset := getattr(answer, "offset", None), int) and offset >= 0:
                ends.setdefault(place.topic.removeprefix(prefix), {})[place.partition] = offset
    return Inspected(str(metadata.cluster_id), partitions, ends)


def _answers(admin: Admin, places: list[TopicPartition], timeout_s: float) -> Mapping[TopicPartition, object]:
    def ask() -> Mapping[TopicPartition, object]:
        found: Mapping[TopicPartition, object] = admin.begin("list_offsets", places, timeout_s=timeout_s).outcomes()
        return found

    return asked(ask, "")
