"""Whether the brokers that lead a topic's partitions accept appends, and know its configuration."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from rioni.config.logs import FailureLog
from rioni.domain.errors import NotFound, Unavailable
from rioni.storage.kafka.client import END, OUT_OF_RANGE, UNKNOWN, KafkaConnection, to_unavailable
from rioni.storage.kafka.topics.admin import GRACE_S, RENEWED_EVERY_S, Admin
from rioni.storage.threads import native_sleep


# --- Probes whether the leaders of a topic's partitions accept appends, without appending ---
#
# A broker applies a change of a topic's configuration some time after it was accepted. So it is probed with records
# that it never stores: their timestamps are far in the future, so they are rejected for that, or before that for their
# size if the topic is closed.

SETTLED_S = 30.0
"""How long the brokers may take to apply accepted changes."""

GONE_S = 10.0
"""A topic of which none of the awaited partitions has been known for this time was deleted meanwhile."""

LOOK_EVERY_S = 0.01
PROBE_TIMEOUT_MS = 2_000

FAR_FUTURE_MS = 253_370_764_800_000
"""The year 9999."""

_CLOSED = frozenset({KafkaError.MSG_SIZE_TOO_LARGE})
_OPEN = frozenset({KafkaError.INVALID_TIMESTAMP})

_failures = FailureLog(structlog.get_logger("rioni.kafka"))

_NOT_WRITABLE = "partitions do not accept probes"


class AppendProbe:
    """Probes the brokers of a cluster; every method blocks, and raises Unavailable on timeout.

    Those that wait also raise NotFound if the topic was deleted meanwhile.
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    def until_open(self, name: str, partitions: Iterable[int]) -> None:
        """Wait until all partitions accept appends."""
        self._until(_OPEN, name, partitions, time.monotonic() + SETTLED_S)

    def until_closed(self, name: str, partitions: Iterable[int], deadline_s: float) -> None:
        """Wait until all partitions reject appends: from then on none is accepted."""
        self._until(_CLOSED, name, partitions, deadline_s)

    def until_there(self, name: str, partitions: Iterable[int]) -> None:
        """Wait until all partitions have a leader, whether open or closed."""
        self._until(_OPEN | _CLOSED, name, partitions, time.monotonic() + SETTLED_S)

    def nothing_behind(self, name: str, ends: Mapping[int, int]) -> bool:
        """Whether partitions hold no unreplicated records from an offset on.

        A leader distinguishes an offset after its last record from one of a record not replicated yet: only the
        former is out of range.

        Args:
            name: the name of a topic; if it is open, concurrent appends count too.
            ends: for each partition, the end of the readable records.
        """
        waiting = set(ends)
        deadline_s = time.monotonic() + PROBE_TIMEOUT_MS / 1_000
        with contextlib.closing(Consumer(self._connection.consumer())) as consumer:
            consumer.assign([TopicPartition(name, number, end + 1) for number, end in ends.items()])
            while waiting and time.monotonic() < deadline_s:
                message = consumer.poll(LOOK_EVERY_S)
                if message is None:
                    continue
                if (error := message.error()) is None or error.code() == END:
                    return False
                if error.code() != OUT_OF_RANGE:
                    raise to_unavailable(error)
                waiting.discard(message.partition())
        return not waiting

    def _until(self, codes: frozenset[int], name: str, partitions: Iterable[int], deadline_s: float) -> None:
        waiting = set(partitions)
        settings = self._connection.client(
            **{"acks": "all", "retries": 0, "linger.ms": 0, "message.timeout.ms": PROBE_TIMEOUT_MS}
        )
        producer, renewed_s = Producer(settings), time.monotonic()
        known_s = time.monotonic()
        while True:
            answers = _probe(producer, name, waiting)
            waiting -= {number for number, code in answers.items() if code in codes}
            if not waiting:
                _failures.succeeded(_NOT_WRITABLE)
                return
            if not all(answers.get(number) in UNKNOWN for number in waiting):
                known_s = time.monotonic()
            elif time.monotonic() - known_s > GONE_S:
                raise NotFound(f"topic {name} was deleted")
            if time.monotonic() > deadline_s:
                errors = {number: KafkaError(code).str() for number, code in answers.items() if number in waiting}
                unavailable = Unavailable(
                    f"Partitions {', '.join(map(str, sorted(waiting)))} of topic {name} were not writable in time. "
                    "Try again later."
                )
                _failures.failed(_NOT_WRITABLE, unavailable, errors=errors)
                raise unavailable
            native_sleep(LOOK_EVERY_S)
            if time.monotonic() - renewed_s > RENEWED_EVERY_S:
                producer, renewed_s = Producer(settings), time.monotonic()


def _probe(producer: Producer, name: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the error codes of the partitions' answers; those that do not answer in time are missing."""
    answers: dict[int, int] = {}
    for number in partitions:
        answer = partial(answers.__setitem__, number)
        try:
            producer.produce(name, None, b"probe", number, on_delivery=partial(_note, answer), timestamp=FAR_FUTURE_MS)
        except KafkaException as ex:
            # The producer does not know a new partition yet, and would not refresh its metadata soon.
            answer(ex.args[0].code())
    if any(code in UNKNOWN for code in answers.values()):
        with contextlib.suppress(KafkaException):
            producer.list_topics(name, PROBE_TIMEOUT_MS / 1_000)
    producer.flush(PROBE_TIMEOUT_MS / 1_000 + GRACE_S)
    return answers


def _note(answer: Callable[[int], None], error: KafkaError | None, _message: Message) -> None:
    answer(KafkaError.NO_ERROR if error is None else error.code())


# --- Waits until a topic's configuration has propagated to all brokers that may lead it ---
#
# Brokers apply one log of all changes, each at its own pace. A broker that becomes the leader before it has applied the
# closing of a topic uses the previous configuration for an instant. So closing a topic waits for all brokers with
# replicas, leaders or not: each later leader has then already applied the change.

ANSWER_TIMEOUT_S = 2.0


def wait_until_propagated(admin: Admin, name: str, setting: str, value: str, deadline_s: float) -> set[int]:
    """Wait until all brokers with replicas of a topic know the value of a setting; blocks.

    Brokers that Kafka considers dead are skipped: they can't lead before they have caught up.

    Args:
        admin: renewed regularly. A client that only knows a broker cut off from the others never notices.
        name: the name of the topic.
        setting: a setting of its configuration.
        value: the expected value.
        deadline_s: when to stop waiting, on the monotonic clock.

    Returns:
        The brokers that know it.

    Raises:
        KafkaException: Kafka does not answer.
        Unavailable: not all of them know it in time.
    """
    configured: set[int] = set()
    while True:
        admin.renew()
        try:
            copies = _living_copies(admin, name)
        except KafkaException:
            # The request may have gone to the very broker that hangs; the next one goes to another.
            if time.monotonic() > deadline_s:
                raise
            native_sleep(LOOK_EVERY_S)
            continue
        if not (waiting := copies - configured):
            return configured
        if time.monotonic() > deadline_s:
            raise Unavailable(
                f"Kafka brokers {', '.join(map(str, sorted(waiting)))} did not apply the configuration of topic "
                f"{name} in time. Try again later."
            )
        configured |= _brokers_with(admin, waiting, name, setting, value)
        if waiting - configured:
            native_sleep(LOOK_EVERY_S)


def _living_copies(admin: Admin, name: str) -> set[int]:
    found = admin.metadata(name, ANSWER_TIMEOUT_S)
    if (error := found.topics[name].error) is not None:
        raise KafkaException(error)
    copies: set[int] = {number for each in found.topics[name].partitions.values() for number in each.replicas}
    return copies.intersection(found.brokers)


def _brokers_with(admin: Admin, brokers: set[int], name: str, setting: str, value: str) -> set[int]:
    """Return the brokers that know the value of a topic's setting."""
    topic = ConfigResource(ResourceType.TOPIC, name)
    # In a request with a broker resource, the topic resource goes to the same broker.
    requests = {
        number: admin.begin(
            "describe_configs",
            [topic, ConfigResource(ResourceType.BROKER, str(number))],
            timeout_s=ANSWER_TIMEOUT_S,
        )
        for number in brokers
    }
    configured = set()
    for number, request in requests.items():
        try:
            if request.result()[topic][setting].value == value:  # waits: it has a deadline
                configured.add(number)
        except KafkaException:
            continue  # retried
    return configured
