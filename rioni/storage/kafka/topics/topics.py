"""Topic administration: creates, extends, closes, empties and deletes topics. Every method blocks."""

import functools
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NoReturn

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
from rioni.domain.ports.event_store import Bounds
from rioni.domain.ports.health import Health
from rioni.storage.kafka.admin import Admin, pause
from rioni.storage.kafka.client import MOVED, RECORD_BYTES_MAX, Connection, asked
from rioni.storage.kafka.topics.append_probe import SETTLED_S, AppendProbe
from rioni.storage.kafka.topics.config_propagation import wait_until_propagated
from rioni.storage.kafka.topics.health import ClusterHealth


LATE_S = 60.0
"""Records that bear an older time are refused by the brokers: it bounds when the last of a batch can come."""

SIZE = "max.message.bytes"
OPEN, CLOSED = str(2 * RECORD_BYTES_MAX), "0"
"""What the size of a topic's batches is limited to. No batch is empty, so the brokers themselves refuse everything that
is appended to a closed topic, whoever it comes from."""

LATE = "message.timestamp.before.max.ms"
REFUSED, TAKEN = str(int(1_000 * LATE_S)), str(2**63 - 1)

UNCLEAN = "unclean.leader.election.enable"
"""Whether a broker may lead that lacks acknowledged events. It is set for each topic: the cluster may allow it."""

_CONFIGURATION = {
    SIZE: OPEN,
    UNCLEAN: "false",
    # The broker removes what is too old, so that it can tell since when.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # It says when an event was recorded; and nothing may come from the future, which probes rely on.
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
}

LOOK_EVERY_S = 0.02

_log = structlog.get_logger("rioni.kafka")


class Topics:
    """The topics of one cluster; every method may raise Unavailable, and NotFound where the topic is unknown."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._timeout_s = connection.request_timeout_s
        self._admin = Admin(connection)
        self._health = ClusterHealth(connection)
        self._probes = AppendProbe(connection)
        self._counts: dict[str, int] = {}
        self._compacted: dict[str, int] = {}
        self._safe: set[str] = set()
        """The topics that are known to be led by nobody who lacks acknowledged events."""

    def name(self, topic: str) -> str:
        """The name of a topic in the cluster."""
        return self._connection.topic_prefix + topic

    def knows(self, topic: str, partitions: Collection[int]) -> bool:
        """Whether the topic is known to have these partitions; never blocks."""
        return max(partitions, default=0) < self._counts.get(topic, 0)

    def count(self, topic: str, timeout_s: float | None = None) -> int:
        """The number of partitions; Kafka is asked."""
        return len(self._partitions(topic, timeout_s))

    def _partitions(self, topic: str, timeout_s: float | None = None) -> Mapping[int, PartitionMetadata]:
        name = self.name(topic)
        found = asked(lambda: self._admin.metadata(name, timeout_s), topic).topics[name]
        if found.error is not None:
            self._counts.pop(topic, None)
            asked(functools.partial(_raise, found.error), topic)
        partitions: Mapping[int, PartitionMetadata] = found.partitions
        self._counts[topic] = len(partitions)
        return partitions

    def forget(self, topic: str) -> None:
        """Ask Kafka about the topic the next time."""
        self._counts.pop(topic, None)

    def cluster_id(self) -> str:
        """The id that the cluster has given itself; Kafka is asked."""
        return str(asked(lambda: self._admin.ask("describe_cluster"), "").cluster_id)

    def health(self) -> Health:
        """Ask a broker which others live, and judge that; blocks for some seconds at most."""
        return self._health.look(self._admin)

    # --- changes ---

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with as many copies as there can be; see the port.

        Raises:
            Conflict: it exists with another number of partitions.
        """
        copies, enough = self._connection.copies(self._brokers())
        if copies == 1:
            _log.warning("a topic has a single replica: acknowledged events may be lost", topic=topic)
        # With two of three copies written an event outlives any one machine; with less it is refused.
        configuration = _CONFIGURATION | {"min.insync.replicas": str(enough)}
        if self._connection.refuses_late:
            configuration[LATE] = REFUSED
        new = NewTopic(self.name(topic), partitions, copies, config=configuration)
        try:
            self._admin.ask("create_topics", [new])
        except KafkaException as ex:
            if ex.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                asked(functools.partial(_raise, ex.args[0]), topic)
            if (count := self._count_of_new(topic)) != partitions:
                raise Conflict(f"topic {topic} exists with {count} partitions") from ex
            # An attempt before this one may have ended before there were leaders; and it may be closed already.
            self._probes.until_there(self.name(topic), range(partitions))
            return
        self._probes.until_open(self.name(topic), range(partitions))
        self._counts[topic] = partitions

    def _count_of_new(self, topic: str) -> int:
        """The number of partitions of a topic that exists, of which the broker that is asked may not have heard yet."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return self.count(topic)
            except NotFound as ex:
                if time.monotonic() > deadline_s:
                    raise Unavailable(
                        f"Timed out waiting for Kafka to publish the metadata of topic {topic}. Try again later."
                    ) from ex
                pause(LOOK_EVERY_S)

    def extend(self, topic: str, partitions: int) -> None:
        """Add partitions up to a number; see the port."""
        count = self.count(topic)
        if partitions <= count:
            return
        try:
            self._admin.ask("create_partitions", [NewPartitions(self.name(topic), partitions)])
        except KafkaException as ex:
            # The broker that was asked had not heard yet that another attempt has added them.
            if ex.args[0].code() != KafkaError.INVALID_PARTITIONS:
                asked(functools.partial(_raise, ex.args[0]), topic)
        self._probes.until_there(self.name(topic), range(count, partitions))
        self._counts[topic] = partitions

    def close(self, topic: str) -> Sequence[Bounds]:
        """Let the brokers refuse whatever is appended, and return what the topic holds for good."""
        # A client that has come to a broker which is cut off from the others stays with it.
        self._admin.renew()
        name, partitions = self.name(topic), range(self.count(topic))
        self._configure(topic, {SIZE: CLOSED})
        deadline_s = time.monotonic() + SETTLED_S
        while True:
            # First of all those that may become leaders; then the probes say that the leaders have done it.
            heard = asked(lambda: wait_until_propagated(self._admin, name, SIZE, CLOSED, deadline_s), topic)
            self._probes.until_closed(name, partitions, deadline_s)
            # Who has not heard of it may have been a leader once, and not know that there is another one.
            if {each.leader for each in self._partitions(topic).values()} <= heard:
                bounds = self._bounds(topic, partitions)
                # What was taken before that may still be on its way to the copies.
                if self._probes.nothing_behind(name, {number: each.newest + 1 for number, each in enumerate(bounds)}):
                    return bounds
            if time.monotonic() > deadline_s:
                raise Unavailable(f"Timed out reading the end offsets of topic {topic} from Kafka. Try again later.")

    def make_safe(self, topic: str) -> None:
        """Forbid brokers that lack acknowledged events to lead a topic that was made without that; asks Kafka once."""
        if topic not in self._safe:
            if not self.is_safe(topic):
                self._configure(topic, {UNCLEAN: "false"})
            self._safe.add(topic)

    def take_late(self, topic: str, *, late: bool) -> None:
        """Let the brokers take records that bear an old time, or refuse them; they do so a little later."""
        self._configure(topic, {LATE: TAKEN if late else REFUSED})

    def delete(self, topic: str) -> None:
        """Delete a topic; nothing where it is unknown."""
        self.forget(topic)
        self._compacted.pop(topic, None)
        self._safe.discard(topic)
        deadline_s = time.monotonic() + self._timeout_s
        try:
            asked(lambda: self._admin.ask("delete_topics", [self.name(topic)]), topic)
            # The brokers hear of it one after the other.
            while (left_s := deadline_s - time.monotonic()) > 0:
                self.count(topic, left_s)
                pause(LOOK_EVERY_S)
        except NotFound:
            return
        raise Unavailable(f"Timed out deleting the topic {topic} in Kafka. Try again later.")

    def compact(self, topic: str, lag_ms: int) -> None:
        """Let Kafka compact the topic, whatever is older than that; from then on it does so by itself."""
        self.make_safe(topic)
        # It asks again with every round, and a lag is never exact.
        if topic not in self._compacted or abs(self._compacted[topic] - lag_ms) > lag_ms // 2:
            lag_ms = max(1, lag_ms)
            policy = {
                # With `delete` too old records may be removed, which Kafka, with that retention, never does by itself.
                "cleanup.policy": "compact,delete",
                "min.compaction.lag.ms": lag_ms,
                # Without it what was written last would stay, be it superseded or not.
                "max.compaction.lag.ms": 2 * lag_ms,
                "delete.retention.ms": lag_ms,
            }
            self._configure(topic, {name: str(value) for name, value in policy.items()})
            self._compacted[topic] = lag_ms

    def expire(self, topic: str, before_ms: int) -> int:
        """Remove what was recorded before this time, up to the first record that was not; return the number."""
        self.make_safe(topic)
        count = self.count(topic)
        before, since = self.bounds(topic), self._offsets(topic, range(count), _since(before_ms))
        ends = {
            number: bounds.newest + 1 if since[number] < 0 else since[number] for number, bounds in enumerate(before)
        }
        removed = {number: end for number, end in ends.items() if end > before[number].oldest}
        if removed:
            places = [TopicPartition(self.name(topic), number, end) for number, end in removed.items()]
            asked(lambda: self._admin.ask("delete_records", places), topic)
        return sum(end - before[number].oldest for number, end in removed.items())

    # --- questions ---

    def is_safe(self, topic: str) -> bool:
        """Whether the configuration of the topic itself forbids brokers to lead it that lack acknowledged events."""
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic))
        entry = asked(lambda: self._admin.ask("describe_configs", [resource]), topic)[resource][UNCLEAN]
        return bool(entry.value == "false" and entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """What all partitions hold, by number."""
        return self._bounds(topic, range(self.count(topic)))

    def _bounds(self, topic: str, partitions: Sequence[int]) -> Sequence[Bounds]:
        # Oldest first: in between retention may go on, but nothing comes back.
        oldest, next_ = (self._offsets(topic, partitions, spec) for spec in (OFFSET_BEGINNING, OFFSET_END))
        return [Bounds(oldest[number], max(oldest[number], next_[number]) - 1) for number in partitions]

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first event recorded at this time or later; behind the newest where there is none."""
        first = self._offsets(topic, [partition], _since(recorded_at_ms))[partition]
        return first if first >= 0 else self._offsets(topic, [partition], OFFSET_END)[partition]

    def _offsets(self, topic: str, partitions: Iterable[int], spec: int) -> Mapping[int, int]:
        wanted = [TopicPartition(self.name(topic), number, spec) for number in partitions]
        deadline_s = time.monotonic() + self._timeout_s

        def look() -> dict[int, int]:
            while True:
                try:
                    answers = self._admin.ask("list_offsets", wanted)
                    found = {place.partition: each.offset for place, each in answers.items()}
                except KafkaException as ex:
                    if ex.args[0].code() not in MOVED or time.monotonic() > deadline_s:
                        raise
                else:
                    # The client also says so, without any error, where it has no answer.
                    if OFFSET_INVALID not in found.values():
                        return found
                    if time.monotonic() > deadline_s:
                        raise Unavailable(
                            f"Timed out reading the offsets of topic {topic} from Kafka. Try again later."
                        )
                pause(LOOK_EVERY_S)
                # It would go on asking the leader that it knows.
                self._admin.metadata(self.name(topic))

        return asked(look, topic)

    def _configure(self, topic: str, values: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic), incremental_configs=entries)
        asked(lambda: self._admin.ask("incremental_alter_configs", [resource]), topic)

    def _brokers(self) -> int:
        return len(asked(self._admin.metadata, "").brokers)


def _since(ms: int) -> int:
    return max(0, ms)


def _raise(error: KafkaError) -> NoReturn:
    raise KafkaException(error)
