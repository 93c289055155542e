"""Kafka client configuration, and translation of Kafka's errors."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException

from rioni.domain.errors import NotFound, Unavailable


T = TypeVar("T")

COPIES = 3
COPIES_MAX = 1_000
"""No cluster has so many brokers."""

FETCH_AGAIN_MS = 10
"""PERF: when a consumer whose buffer was full asks for more; by default Kafka's client lets a second pass."""

RECORD_BYTES_MAX = 8 * 2**20
"""The size of a record; topics that the broker creates take so much, and a batch's overhead."""

# Those of the codes that the client gives itself have an underscore, and are meant for everybody all the same.
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
"""The codes that say that a topic or partition does not exist."""

TIMED_OUT = {KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}  # noqa: SLF001
"""Error codes that leave the outcome of an append unknown."""

MOVED = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""The codes that say that a partition has, or gets, another leader, who will answer in a moment."""

END = KafkaError._PARTITION_EOF  # noqa: SLF001
"""The code that says where a partition ends."""

OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
"""The code that says that a partition has no such offset."""

SILENCE_MIN_S, SILENCE_MAX_S = 2.0, 60.0
"""Who says nothing for so long is left for another broker; less than the first would end fetches that only wait."""

HEARSAY_MS = 2_000
"""A topic of which the brokers have not heard for so long does not exist."""

# Nothing is written but what needs an operator: clients say in their answers what goes wrong, and try again.
_CRITICAL = 2


class Connection(msgspec.Struct, frozen=True):
    """The `kafka_configuration` of a storage; what else it says, such as where a ZooKeeper is, is not needed."""

    bootstrap_servers: str
    """`host:port`, separated by commas."""
    topic_prefix: str = ""
    """What the names of all topics begin with, where others use the cluster too."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=COPIES_MAX)] | None = None
    """How many copies of each topic there are; by default three, or one for each broker where there are fewer."""
    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1, le=COPIES_MAX)] | None = None
    """How many of them must have an event before it is acknowledged; by default all but one."""
    options: Mapping[str, str] = {}
    """Of librdkafka, credentials among them; never from the configuration of a storage."""
    request_timeout_s: float = 10.0
    """How long Kafka may take to answer whatever is not an append; a setting of the broker's."""
    refuses_late: bool = True
    """Whether records that bear an old time are refused; not where the clock is none."""

    def client(self, **settings: Any) -> dict[str, Any]:
        """The settings of a client."""
        usual = {
            "client.id": "rioni",
            "socket.timeout.ms": int(1_000 * min(max(SILENCE_MIN_S, self.request_timeout_s), SILENCE_MAX_S)),
        }
        own = {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": _CRITICAL,
            # Brokers that make what they are asked about, as they do by default, would bring back deleted topics.
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": HEARSAY_MS,
        }
        return {**usual, **self.options, **own, **settings}

    def copies(self, brokers: int) -> tuple[int, int]:
        """Of so many brokers, how many have a copy of a new topic, and how many of these must have an event."""
        copies = self.replication_factor or min(COPIES, brokers)
        return copies, min(copies, self.min_insync_replicas or max(1, copies - 1))

    def consumer(self, **settings: Any) -> dict[str, Any]:
        """The settings of a consumer that belongs to no group and says when it has come to the end of a partition."""
        own = {
            "group.id": "rioni",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": FETCH_AGAIN_MS,
        }
        return self.client(**own, **settings)


_OF_STORAGES = frozenset({"bootstrap_servers", "topic_prefix", "replication_factor", "min_insync_replicas"})


class TopicPartitionRef(NamedTuple):
    """A partition of a topic, by the name that Kafka knows it by."""

    topic: str
    partition: int


def connection_of(
    configuration: Mapping[str, Any],
    default_servers: str | None,
    options: Callable[[str], Mapping[str, str]] = lambda _servers: {},
    **settings: Any,
) -> Connection:
    """Read the configuration of a storage.

    Args:
        configuration: what was given when the storage was created.
        default_servers: where that does not say where the brokers are.
        options: those of librdkafka for brokers, given as `host:port,host:port`.
        settings: what the broker's settings say; a storage can't.

    Raises:
        Unavailable: it can't be used; the text says what it should be.
    """
    given = {name: value for name, value in configuration.items() if name in _OF_STORAGES}
    if default_servers is not None:
        given.setdefault("bootstrap_servers", default_servers)
    try:
        found = msgspec.convert(given, Connection)
        if found.min_insync_replicas and found.min_insync_replicas > (found.replication_factor or COPIES_MAX):
            raise msgspec.ValidationError("min_insync_replicas is above replication_factor")  # noqa: TRY301 - the same advice
    except msgspec.ValidationError as ex:
        raise Unavailable(
            f"The kafka_configuration of this storage can't be used: {ex}. It needs bootstrap_servers (host:port, "
            f"separated by commas), or the setting `kafka`; it may have {', '.join(sorted(_OF_STORAGES))}."
        ) from ex
    return msgspec.structs.replace(found, options=options(found.bootstrap_servers), **settings)


def asked(question: Callable[[], T], topic: str) -> T:
    """Ask Kafka something about a topic; blocks.

    Raises:
        NotFound: the topic does not exist.
        Unavailable: Kafka does not answer, or refuses.
    """
    try:
        return question()
    except KafkaException as ex:
        error: KafkaError = ex.args[0]
        if error.code() in UNKNOWN:
            raise NotFound(f"topic {topic} does not exist") from ex
        raise unavailable(error) from ex


def unavailable(error: KafkaError) -> Unavailable:
    """What an error of Kafka means to a client of the broker."""
    return Unavailable(f"Kafka rejected the request: {error.str().rstrip('.')}. Try again later.")
