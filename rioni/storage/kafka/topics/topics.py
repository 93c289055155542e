"""Administers topics: creates, extends, closes, empties and deletes them. Every method blocks."""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    PartitionMetadata,
    ResourceType,
)

from rioni.domain.errors import Conflict, NotFound, Unavailable
from rioni.domain.ports.host import Health
from rioni.domain.timelines.position import Bounds
from rioni.storage.kafka.client import (
    MOVED,
    PROPAGATION_MS,
    RECORD_BYTES_MAX,
    KafkaConnection,
    translate_errors,
    translated,
)
from rioni.storage.kafka.topics.admin import Admin
from rioni.storage.kafka.topics.inspection import ClusterHealth, offsets_of
from rioni.storage.kafka.topics.readiness import SETTLED_S, AppendProbe, wait_until_propagated
from rioni.storage.threads import native_sleep


LATE_S = 60.0
"""Brokers reject records with older timestamps, which bounds the time until the last record of a batch can arrive."""

SIZE = "max.message.bytes"
OPEN, CLOSED = str(2 * RECORD_BYTES_MAX), "0"
"""Values of the maximum batch size of a topic. No batch is empty, so the brokers themselves reject every append to a
closed topic, from any client."""

LATE = "message.timestamp.before.max.ms"
REFUSED, TAKEN = str(int(1_000 * LATE_S)), str(2**63 - 1)

UNCLEAN = "unclean.leader.election.enable"
"""Whether a broker that lacks acknowledged events may become leader. Set for each topic: the cluster may allow it."""

_CONFIGURATION = {
    SIZE: OPEN,
    UNCLEAN: "false",
    # The event broker deletes old records itself, so that it knows the oldest position.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # The event broker sets timestamps; and records from the future must be rejected, which probes rely on.
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
}

TOPICS_MAX = 100_000
"""How many topics are remembered: other processes delete some without this one noticing."""

LOOK_EVERY_S = 0.02

KNOWN_WITHIN_S = PROPAGATION_MS / 1_000
"""A topic that the queried brokers do not know for this time does not exist."""

T = TypeVar("T")

_log = structlog.get_logger("rioni.kafka")


class _OfTopics(dict[str, int]):
    """A number for each topic, which can be found out again; any thread may use it."""

    def __setitem__(self, topic: str, number: int) -> None:
        """Keep a number; of too many topics all are forgotten."""
        if len(self) >= TOPICS_MAX and topic not in self:
            self.clear()
        super().__setitem__(topic, number)


class Topics:
    """Administers the topics of one cluster; methods may raise Unavailable, and NotFound for an unknown topic."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._timeout_s = connection.request_timeout_s
        self._admin = Admin(connection)
        self._health = ClusterHealth(connection)
        self._probe = AppendProbe(connection)
        self._counts, self._compacted = _OfTopics(), _OfTopics()
        self._safe = _OfTopics()
        """The topics with unclean leader election disabled."""

    def name(self, topic: str) -> str:
        """Return the full name of a topic in the cluster."""
        return self._connection.topic_prefix + topic

    def knows(self, topic: str, partitions: Collection[int]) -> bool:
        """Whether the topic is known to have these partitions; never blocks."""
        return max(partitions, default=0) < self._counts.get(topic, 0)

    def count(self, topic: str, partitions: int = 1) -> int:
        """Return the number of partitions; queries Kafka. Fewer than requested are NotFound."""
        if (count := len(self._partitions(topic))) < partitions:
            raise NotFound(f"topic {topic} has no partition {partitions - 1}")
        return count

    def _partitions(self, topic: str, timeout_s: float | None = None) -> Mapping[int, PartitionMetadata]:
        name = self.name(topic)
        found = translate_errors(lambda: self._admin.metadata(name, timeout_s), topic).topics[name]
        if found.error is not None:
            self._counts.pop(topic, None)
            raise translated(found.error, topic)
        partitions: Mapping[int, PartitionMetadata] = found.partitions
        self._counts[topic] = len(partitions)
        return partitions

    def drop(self, topic: str) -> None:
        """Drop the cached partition count of a topic."""
        self._counts.pop(topic, None)

    def cluster_id(self) -> str:
        """Return the id of the cluster; queries Kafka."""
        return str(translate_errors(lambda: self._admin.request("describe_cluster"), "").cluster_id)

    def health(self) -> Health:
        """Check the live brokers; blocks for some seconds at most."""
        return self._health.check(self._admin)

    # --- Changes ---

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with the configured number of replicas; see the port.

        Raises:
            Conflict: it exists with another number of partitions.
        """
        copies, enough = self._connection.copies(self._brokers())
        if copies == 1:
            _log.warning("a topic has a single replica: acknowledged events may be lost", topic=topic)
        # With two of three replicas an event survives the loss of one machine; with fewer, appends are rejected.
        configuration = _CONFIGURATION | {"min.insync.replicas": str(enough)}
        if self._connection.refuses_late:
            configuration[LATE] = REFUSED
        new = NewTopic(self.name(topic), partitions, copies, config=configuration)
        try:
            self._admin.request("create_topics", [new])
        except KafkaException as ex:
            if ex.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise translated(ex.args[0], topic) from ex
            if (count := self._count_of_new(topic)) != partitions:
                raise Conflict(f"topic {topic} exists with {count} partitions") from ex
            # An earlier attempt may have ended before there were leaders; and the topic may be closed already.
            self._probe.until_there(self.name(topic), range(partitions))
            return
        self._probe.until_open(self.name(topic), range(partitions))
        self._counts[topic] = partitions

    def _count_of_new(self, topic: str) -> int:
        """Return the partition count of an existing topic, which the queried broker may not know yet."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.count(topic)
            except NotFound as ex:
                if time.monotonic() > deadline_s:
                    raise Unavailable(
                        f"Timed out waiting for Kafka to publish the metadata of topic {topic}. Try again later."
                    ) from ex
                native_sleep(LOOK_EVERY_S)

    def extend(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number; see the port."""
        count = self.count(topic)
        if partitions <= count:
            return
        try:
            self._admin.request("create_partitions", [NewPartitions(self.name(topic), partitions)])
        except KafkaException as ex:
            # The queried broker did not know yet that another attempt has added them.
            if ex.args[0].code() != KafkaError.INVALID_PARTITIONS:
                raise translated(ex.args[0], topic) from ex
        self._probe.until_there(self.name(topic), range(count, partitions))
        self._counts[topic] = partitions

    def close(self, topic: str) -> Sequence[Bounds]:
        """Make the brokers reject all appends, and return the final bounds of the topic."""
        # A client connected to a broker cut off from the others stays with it.
        self._admin.renew()
        name, partitions = self.name(topic), range(self.count(topic))
        self._configure(topic, {SIZE: CLOSED})
        deadline_s = time.monotonic() + SETTLED_S
        while True:
            # First all possible leaders must know the setting; then the probes confirm that the leaders apply it.
            configured = translate_errors(
                lambda: wait_until_propagated(self._admin, name, SIZE, CLOSED, deadline_s), topic
            )
            self._probe.until_closed(name, partitions, deadline_s)
            # A broker that does not know it may be a former leader that has not noticed its replacement.
            if {each.leader for each in self._partitions(topic).values()} <= configured:
                bounds = self._bounds(topic, partitions)
                # Records accepted before may still be being replicated.
                if self._probe.nothing_behind(name, {number: each.newest + 1 for number, each in enumerate(bounds)}):
                    return bounds
            if time.monotonic() > deadline_s:
                raise Unavailable(f"Timed out reading the end offsets of topic {topic} from Kafka. Try again later.")

    def make_safe(self, topic: str) -> None:
        """Disable unclean leader election for a topic created without that; queries Kafka once."""
        if topic not in self._safe:
            if not self.is_safe(topic):
                self._configure(topic, {UNCLEAN: "false"})
            self._safe[topic] = True

    def accept_old_timestamps(self, topic: str, *, late: bool) -> None:
        """Make the brokers accept or reject records with old timestamps; takes effect a little later."""
        self._configure(topic, {LATE: TAKEN if late else REFUSED})

    def delete(self, topic: str) -> None:
        """Delete a topic; unknown ones are ignored."""
        self.drop(topic)
        self._compacted.pop(topic, None)
        self._safe.pop(topic, None)
        deadline_s = time.monotonic() + self._timeout_s
        try:
            translate_errors(lambda: self._admin.request("delete_topics", [self.name(topic)]), topic)
            # The brokers apply it one after the other.
            while (left_s := deadline_s - time.monotonic()) > 0:
                self._partitions(topic, left_s)
                native_sleep(LOOK_EVERY_S)
        except NotFound:
            return
        raise Unavailable(f"Timed out deleting the topic {topic} in Kafka. Try again later.")

    def compact(self, topic: str, lag_ms: int) -> None:
        """Enable compaction of the topic by Kafka for records older than the lag."""
        self.make_safe(topic)
        # Called again in every round, with a slightly varying lag.
        if topic not in self._compacted or abs(self._compacted[topic] - lag_ms) > lag_ms // 2:
            lag_ms = max(1, lag_ms)
            policy = {
                # `delete` permits deleting old records, which Kafka, with that retention, never does by itself.
                "cleanup.policy": "compact,delete",
                "min.compaction.lag.ms": lag_ms,
                # Without it the last segment would stay uncompacted.
                "max.compaction.lag.ms": 2 * lag_ms,
                "delete.retention.ms": lag_ms,
            }
            self._configure(topic, {name: str(value) for name, value in policy.items()})
            self._compacted[topic] = lag_ms

    def delete_before(self, topic: str, before_ms: int) -> int:
        """Delete records before the first one recorded at this time or later; return their number."""
        self.make_safe(topic)
        count = self.count(topic)
        before, offsets = self.bounds(topic), self._offsets(topic, range(count), _since(before_ms))
        ends = {
            number: bounds.newest + 1 if offsets[number] < 0 else offsets[number]
            for number, bounds in enumerate(before)
        }
        removed = {number: end for number, end in ends.items() if end > before[number].oldest}
        if removed:
            places = [TopicPartition(self.name(topic), number, end) for number, end in removed.items()]
            translate_errors(lambda: self._admin.request("delete_records", places), topic)
        return sum(end - before[number].oldest for number, end in removed.items())

    # --- Queries ---

    def is_safe(self, topic: str) -> bool:
        """Whether the topic's own configuration disables unclean leader election."""
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic))
        entry = translate_errors(lambda: self._admin.request("describe_configs", [resource]), topic)[resource][UNCLEAN]
        return bool(entry.value == "false" and entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)

    def bounds(self, topic: str, partitions: int = 1) -> Sequence[Bounds]:
        """Return the bounds of all partitions, by number; raises NotFound if there are fewer than requested."""
        return self._bounds(topic, range(self.count(topic, partitions)))

    def _bounds(self, topic: str, partitions: Sequence[int]) -> Sequence[Bounds]:
        # Oldest first: retention may advance in between, but never goes back.
        oldest, next_ = (self._offsets(topic, partitions, spec) for spec in (OFFSET_BEGINNING, OFFSET_END))
        return [_between(oldest[number], next_[number]) for number in partitions]

    def bounds_of(self, topics: Mapping[str, int]) -> dict[str, list[Bounds]]:
        """Return the bounds of many topics, by the number of their partitions; without those that are unknown now."""
        prefix = self._connection.topic_prefix
        oldest, next_ = (
            offsets_of(self._admin, prefix, topics, spec, time.monotonic() + self._timeout_s)
            for spec in (OFFSET_BEGINNING, OFFSET_END)
        )
        return {
            topic: [_between(oldest[topic][number], next_[topic][number]) for number in range(count)]
            for topic, count in topics.items()
            if all(number in found.get(topic, ()) for found in (oldest, next_) for number in range(count))
        }

    def offset_at_time(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """Return the position of the first event recorded at this time or later, or else that after all events."""
        self.count(topic, partition + 1)
        first = self._offsets(topic, [partition], _since(recorded_at_ms))[partition]
        return first if first >= 0 else self._offsets(topic, [partition], OFFSET_END)[partition]

    def _offsets(self, topic: str, partitions: Iterable[int], spec: int) -> Mapping[int, int]:
        wanted = [TopicPartition(self.name(topic), number, spec) for number in partitions]
        deadline_s = time.monotonic() + self._timeout_s

        def look() -> dict[int, int]:
            while True:
                try:
                    answers = self._admin.request("list_offsets", wanted)
                    found = {place.partition: each.offset for place, each in answers.items()}
                except KafkaException as ex:
                    if ex.args[0].code() not in MOVED or time.monotonic() > deadline_s:
                        raise
                else:
                    # The client also returns this, without any error, if it has no answer.
                    if OFFSET_INVALID not in found.values():
                        return found
                    if time.monotonic() > deadline_s:
                        raise Unavailable(
                            f"Timed out reading the offsets of topic {topic} from Kafka. Try again later."
                        )
                native_sleep(LOOK_EVERY_S)
                # Otherwise it would keep asking the leader that it knows.
                self._admin.metadata(self.name(topic))

        return translate_errors(look, topic)

    def _configure(self, topic: str, values: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic), incremental_configs=entries)
        translate_errors(lambda: self._admin.request("incremental_alter_configs", [resource]), topic)

    def _brokers(self) -> int:
        return len(translate_errors(self._admin.metadata, "").brokers)


def until_known(question: Callable[[], T]) -> T:
    """Ask about a topic of the registry again while the queried broker does not know it, or one of its partitions.

    Brokers apply changes at different times: some do not know a new topic yet. Blocks the caller
    for some seconds at most, with pauses between its questions.

    Args:
        question: asks in a thread pool; raises NotFound while the broker does not know the topic.

    Raises:
        NotFound: the topic or the partition is still unknown, or was deleted.
    """
    deadline_s = time.monotonic() + KNOWN_WITHIN_S
    while True:
        try:
            return question()
        except NotFound:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(LOOK_EVERY_S)


def _between(oldest: int, next_: int) -> Bounds:
    """Bounds whose ends were asked for one after the other: retention may have advanced in between."""
    return Bounds(oldest, max(oldest, next_) - 1)


def _since(ms: int) -> int:
    return max(0, ms)
