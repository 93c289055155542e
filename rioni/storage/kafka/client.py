"""Configures Kafka clients, and translates Kafka's errors."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from rioni.domain.errors import NotFound, Unavailable


T = TypeVar("T")

COPIES = 3
COPIES_MAX = 1_000
"""Upper limit of a sensible number of replicas."""

FETCH_AGAIN_MS = 10
"""PERF: delay before a consumer whose buffer was full fetches again; Kafka's default is one second."""

RECONNECT_MS = 20
"""PERF: first delay before a client connects again, doubled with each attempt. A new client waits for half of it before
it looks for another broker: with Kafka's default of 100 its first answer takes 50 ms more."""

RECORD_BYTES_MAX = 8 * 2**20
"""Maximum size of a record; topics that the broker creates accept this plus the overhead of a batch."""

# Error codes raised by the client itself have an underscore, but are public.
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
"""Error codes for an unknown topic or partition."""

TIMED_OUT = {KafkaError._MSG_TIMED_OUT, KafkaError.REQUEST_TIMED_OUT}  # noqa: SLF001
"""Error codes that leave the outcome of an append unknown."""

SILENCE = {
    KafkaError._TIMED_OUT,  # noqa: SLF001 - as the client calls it
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - as above
    KafkaError._TRANSPORT,  # noqa: SLF001 - as above
    KafkaError._RESOLVE,  # noqa: SLF001 - as above
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
}
"""Error codes of the client itself if no broker answers."""

MOVED = {
    KafkaError._NOENT,  # noqa: SLF001 - as the client calls it
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
"""Error codes for a partition with a new or moving leader, which will be available in a moment."""

END = KafkaError._PARTITION_EOF  # noqa: SLF001
"""Pseudo error code that reports the end of a partition."""

OUT_OF_RANGE = KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001
"""Error code for an offset that does not exist in a partition."""

RECONNECT_MAX_MS = 1_000
"""The time within which a client notices that brokers are back; with Kafka's default it may take ten seconds."""

SILENCE_MIN_S, SILENCE_MAX_S = 2.0, 60.0
"""Bounds of the socket timeout; below the minimum, fetches that only wait for events would fail."""

PROPAGATION_MS = 2_000
"""A topic still unknown to the brokers after this time does not exist."""

# Only critical errors are logged: clients report other errors in their results, and retry.
_CRITICAL = 2


class KafkaConnection(msgspec.Struct, frozen=True):
    """The `kafka_configuration` of a storage; further members, such as a ZooKeeper address, are ignored."""

    bootstrap_servers: str
    """`host:port`, separated by commas."""
    topic_prefix: str = ""
    """Prefix of all topic names, for clusters shared with others."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=COPIES_MAX)] | None = None
    """Number of replicas of each topic; by default three, or one for each broker if there are fewer."""
    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1, le=COPIES_MAX)] | None = None
    """How many replicas must have an event before it is acknowledged; by default all but one."""
    options: Mapping[str, str] = {}
    """Options of librdkafka, including credentials; never from the configuration of a storage."""
    request_timeout_s: float = 10.0
    """Timeout of all requests except appends; a setting of the broker."""
    refuses_late: bool = True
    """Whether topics reject records with old timestamps; false if the clock is simulated."""

    def client(self, **settings: Any) -> dict[str, Any]:
        """Return the configuration of a client."""
        usual = {
            "client.id": "rioni",
            "reconnect.backoff.ms": RECONNECT_MS,
            "reconnect.backoff.max.ms": RECONNECT_MAX_MS,
            "socket.timeout.ms": int(1_000 * min(max(SILENCE_MIN_S, self.request_timeout_s), SILENCE_MAX_S)),
        }
        own = {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": _CRITICAL,
            # Brokers that auto-create requested topics, which is the default, would recreate deleted ones.
            "allow.auto.create.topics": False,
            "topic.metadata.propagation.max.ms": PROPAGATION_MS,
        }
        return {**usual, **self.options, **own, **settings}

    def copies(self, brokers: int) -> tuple[int, int]:
        """Return the number of replicas of a new topic and its min.insync.replicas, given the number of brokers.

        Raises:
            Unavailable: Kafka names no broker at present, so the possible number of copies is unknown.
        """
        if brokers < 1:
            raise Unavailable("Kafka names none of its brokers as alive. Try again later.")
        copies = self.replication_factor or min(COPIES, brokers)
        return copies, min(copies, self.min_insync_replicas or max(1, copies - 1))

    def consumer(self, **settings: Any) -> dict[str, Any]:
        """Return the configuration of a consumer without a group, which reports the end of partitions."""
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
    """A partition of a topic, by its full name in Kafka."""

    topic: str
    partition: int


def connection_of(
    configuration: Mapping[str, Any],
    default_servers: str | None,
    options: Callable[[str], Mapping[str, str]] = lambda _servers: {},
    **settings: Any,
) -> KafkaConnection:
    """Parse the configuration of a storage.

    Args:
        configuration: given when the storage was created.
        default_servers: the brokers, if the configuration does not set them.
        options: returns the librdkafka options for brokers, given as `host:port,host:port`.
        settings: from the broker's settings; a storage can't set them.

    Raises:
        Unavailable: it is invalid; the message says what is expected.
    """
    given = {name: value for name, value in configuration.items() if name in _OF_STORAGES}
    if default_servers is not None:
        given.setdefault("bootstrap_servers", default_servers)
    try:
        found = msgspec.convert(given, KafkaConnection)
        if found.min_insync_replicas and found.min_insync_replicas > (found.replication_factor or COPIES_MAX):
            raise msgspec.ValidationError("min_insync_replicas is above replication_factor")  # noqa: TRY301 - the same advice
    except msgspec.ValidationError as ex:
        raise Unavailable(
            f"The kafka_configuration of this storage can't be used: {ex}. It needs bootstrap_servers (host:port, "
            f"separated by commas), or the setting `kafka`; it may have {', '.join(sorted(_OF_STORAGES))}."
        ) from ex
    return msgspec.structs.replace(found, options=options(found.bootstrap_servers), **settings)


def translate_errors(question: Callable[[], T], topic: str) -> T:
    """Run a Kafka request about a topic, with its errors translated; blocks.

    Raises:
        NotFound: the topic does not exist.
        Unavailable: Kafka does not answer, or rejects the request.
    """
    try:
        return question()
    except KafkaException as ex:
        raise translated(ex.args[0], topic) from ex


def next_message(consumer: Consumer, timeout_s: float) -> list[Message]:
    """Return the next message, if one arrives in time; blocks a native thread."""
    message = consumer.poll(max(0.0, timeout_s))
    return [] if message is None else [message]


def translated(error: KafkaError, topic: str) -> NotFound | Unavailable:
    """Translate an error of a request about a topic to the broker's error."""
    return NotFound(f"topic {topic} does not exist") if error.code() in UNKNOWN else to_unavailable(error)


def to_unavailable(error: KafkaError) -> Unavailable:
    """Translate an error of Kafka to the broker's error, which distinguishes silence from a rejection."""
    what = "Kafka rejected the request"
    if error.code() in SILENCE:
        what = "Kafka does not answer"
    elif error.code() in MOVED:
        what = "Kafka has no leader for a partition at the moment"
    return Unavailable(f"{what}: {error.str().rstrip('.')}. Try again later.")
