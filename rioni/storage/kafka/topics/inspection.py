"""Reads a Kafka cluster's id, topics and offsets, of many topics at once; changes nothing."""

import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition
from confluent_kafka.admin import ClusterMetadata

from rioni.domain.errors import Unavailable
from rioni.domain.system.event_chains import ChainHead
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
    offsets = _Offsets(admin, connection.topic_prefix, time.monotonic() + timeout_s)
    partitions = _partitions(metadata, connection.topic_prefix, topics)
    ends = offsets.of({topic: partitions.get(topic, 0) for topic in ended}, OFFSET_END)
    return Inspected(str(metadata.cluster_id), partitions, ends)


def ranges(connection: Connection, topics: Collection[str], *, reach_s: float, timeout_s: float) -> list[ChainHead]:
    """Return the ranges of all partitions of topics; see the port `Ranged`. Arguments, and raises, as `inspect`."""
    admin = Admin(connection)
    metadata = translate_errors(lambda: admin.metadata(timeout_s=reach_s), "")
    offsets = _Offsets(admin, connection.topic_prefix, time.monotonic() + timeout_s)
    partitions = _partitions(metadata, connection.topic_prefix, topics)
    # Begins first: retention may advance in between, but never goes back.
    begins, ends = offsets.of(partitions, OFFSET_BEGINNING), offsets.of(partitions, OFFSET_END)
    return [
        ChainHead(topic, number, first, max(first, ends[topic][number]), "")
        for topic in partitions
        for number, first in sorted(begins.get(topic, {}).items())
        if number in ends.get(topic, {})
    ]


def _partitions(metadata: ClusterMetadata, prefix: str, topics: Collection[str]) -> dict[str, int]:
    return {
        topic: len(metadata.topics[prefix + topic].partitions) for topic in topics if prefix + topic in metadata.topics
    }


class _Offsets(NamedTuple):
    """Asks for offsets, with one deadline for all questions."""

    admin: Admin
    prefix: str
    deadline_s: float

    def of(self, partitions: Mapping[str, int], spec: int) -> dict[str, dict[int, int]]:
        """Return offsets by topic and partition; without those that are unknown now."""
        wanted = [
            TopicPartition(self.prefix + topic, number, spec)
            for topic, count in partitions.items()
            for number in range(count)
        ]
        found: dict[str, dict[int, int]] = {}
        for first in range(0, len(wanted), PARTITIONS_MAX):
            left_s = self.deadline_s - time.monotonic()
            if left_s <= 0:
                raise Unavailable("Timed out reading the offsets of all topics from Kafka.")
            answers = _answers(self.admin, wanted[first : first + PARTITIONS_MAX], left_s)
            for place, answer in answers.items():
                # Errors and negative offsets mean that the offset is currently unknown.
                if isinstance(offset := getattr(answer, "offset", None), int) and offset >= 0:
                    found.setdefault(place.topic.removeprefix(self.prefix), {})[place.partition] = offset
        return found


def _answers(admin: Admin, places: list[TopicPartition], timeout_s: float) -> Mapping[TopicPartition, object]:
    def ask() -> Mapping[TopicPartition, object]:
        found: Mapping[TopicPartition, object] = admin.begin("list_offsets", places, timeout_s=timeout_s).outcomes()
        return found

    return translate_errors(ask, "")
