"""Reads what a Kafka cluster is like, and changes nothing: its id, topics and offsets, its health and durability."""

import contextlib
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

import structlog
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import Health
from rioni.domain.system.anchors import ChainHead
from rioni.storage.kafka.client import SILENCE, KafkaConnection, to_unavailable, translate_errors
from rioni.storage.kafka.topics.admin import Admin


# --- Reads a Kafka cluster's id, topics and offsets, of many topics at once; changes nothing ---

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
    connection: KafkaConnection, topics: Collection[str], ended: Collection[str], *, reach_s: float, timeout_s: float
) -> Inspected:
    """Read the state of topics; blocks until the timeouts at most.

    Args:
        connection: how to reach the brokers.
        topics: the topics to look up.
        ended: the topics among these whose end positions are wanted.
        reach_s: timeout of the first answer, in seconds.
        timeout_s: timeout of all further answers together, in seconds.

    Raises:
        Unavailable: no broker answers in time, or the request is rejected.
    """
    admin, partitions, cluster_id = _reached(connection, topics, reach_s)
    wanted = {topic: partitions.get(topic, 0) for topic in ended}
    ends = offsets_of(admin, connection.topic_prefix, wanted, OFFSET_END, time.monotonic() + timeout_s)
    return Inspected(cluster_id, partitions, ends)


def ranges(
    connection: KafkaConnection, topics: Collection[str], *, reach_s: float, timeout_s: float
) -> list[ChainHead]:
    """Return the ranges of all partitions of topics; see the port `Ranged`. Arguments, and raises, as `inspect`."""
    admin, partitions, _ = _reached(connection, topics, reach_s)
    deadline_s = time.monotonic() + timeout_s
    # Begins first: retention may advance in between, but never goes back.
    begins, ends = (
        offsets_of(admin, connection.topic_prefix, partitions, spec, deadline_s)
        for spec in (OFFSET_BEGINNING, OFFSET_END)
    )
    return [
        ChainHead(topic, number, first, max(first, ends[topic][number]), "")
        for topic in partitions
        for number, first in sorted(begins.get(topic, {}).items())
        if number in ends.get(topic, {})
    ]


def _reached(connection: KafkaConnection, topics: Collection[str], reach_s: float) -> tuple[Admin, dict[str, int], str]:
    """Return a client, the number of partitions of each topic that exists, and the id of the cluster."""
    admin, prefix = Admin(connection), connection.topic_prefix
    found = translate_errors(lambda: admin.metadata(timeout_s=reach_s), "")
    partitions = {each: len(found.topics[prefix + each].partitions) for each in topics if prefix + each in found.topics}
    return admin, partitions, str(found.cluster_id)


def offsets_of(
    admin: Admin, prefix: str, partitions: Mapping[str, int], spec: int, deadline_s: float
) -> dict[str, dict[int, int]]:
    """Return offsets by topic and partition, without those that are unknown now; blocks.

    Args:
        admin: of the cluster.
        prefix: of all names of topics there.
        partitions: the number of partitions of each topic.
        spec: which offsets.
        deadline_s: when to stop, on the monotonic clock.

    Raises:
        Unavailable: Kafka does not answer in time, or rejects the request.
    """
    wanted = [TopicPartition(prefix + topic, number, spec) for topic, n in partitions.items() for number in range(n)]
    found: dict[str, dict[int, int]] = {}
    for first in range(0, len(wanted), PARTITIONS_MAX):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise Unavailable("Timed out reading the offsets of all topics from Kafka.")
        some = wanted[first : first + PARTITIONS_MAX]
        answers = translate_errors(partial(_outcomes, admin, some, left_s), "")
        for place, answer in answers.items():
            # Errors and negative offsets mean that the offset is currently unknown.
            if isinstance(offset := getattr(answer, "offset", None), int) and offset >= 0:
                found.setdefault(place.topic.removeprefix(prefix), {})[place.partition] = offset
    return found


def _outcomes(admin: Admin, places: list[TopicPartition], timeout_s: float) -> Mapping[TopicPartition, object]:
    found: Mapping[TopicPartition, object] = admin.begin("list_offsets", places, timeout_s=timeout_s).outcomes()
    return found


# --- Checks the health and durability of a Kafka cluster ---

ANSWER_TIMEOUT_S = 2.0
CLIENT_ERROR_TIMEOUT_S = 1.0
CLIENT_ERRORS_MAX = 1_000

NO_ANSWER = (
    "No Kafka broker responds. Check the brokers and the settings `kafka` and `kafka_options`; the client's errors "
    "are in this node's log."
)
SINGLE = (
    "Kafka has a single broker: what was acknowledged can be lost when its machine loses power, because Kafka does not "
    "wait for the disk. Run three."
)
ONE_COPY_ENOUGH = (
    "Kafka acknowledges what a single broker has (min.insync.replicas is 1), and it can be lost with that broker. Run "
    "three brokers, and have at least two copies in `min_insync_replicas`."
)

_log = structlog.get_logger("rioni.kafka")


class ClusterHealth:
    """Checks a cluster's health, and logs once why it can't be reached until it is reachable again."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._answers = True

    def check(self, admin: Admin) -> Health:
        """Ask a broker for the live brokers; blocks for some seconds at most.

        Raises:
            Unavailable: no broker answers, or the request is rejected.
        """
        try:
            brokers = len(admin.request("describe_cluster", timeout_s=ANSWER_TIMEOUT_S).nodes)
        except KafkaException as ex:
            raise self._no_answer() if ex.args[0].code() in SILENCE else to_unavailable(ex.args[0]) from ex
        if not self._answers:
            self._answers = True
            _log.info("Kafka answers again", servers=self._connection.bootstrap_servers)
        _, enough = self._connection.copies(brokers)
        warnings = (SINGLE,) if brokers == 1 else (ONE_COPY_ENOUGH,) if enough == 1 else ()
        return Health(detail=f"brokers: {brokers}", warnings=warnings)

    def _no_answer(self) -> Unavailable:
        if self._answers:
            self._answers = False
            servers = self._connection.bootstrap_servers
            _log.warning("no Kafka broker responds", servers=servers, error=_client_error(self._connection))
        return Unavailable(NO_ANSWER)


def _client_error(connection: KafkaConnection) -> str:
    """Return the error of a connecting client, such as rejected credentials; blocks for a second."""
    met: list[KafkaError] = []
    # A separate client: unfetched errors would accumulate in a long-lived one.
    admin = AdminClient(connection.client(error_cb=met.append))
    with contextlib.suppress(KafkaException):
        admin.list_topics(timeout=CLIENT_ERROR_TIMEOUT_S)
    for _ in range(CLIENT_ERRORS_MAX):
        if not admin.poll(0):
            break
    return next((each.str() for each in met if each.code() != KafkaError._ALL_BROKERS_DOWN), "")  # noqa: SLF001
