"""Checks the health and durability of a Kafka cluster."""

import contextlib

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from rioni.domain.errors import Unavailable
from rioni.domain.ports.health import Health
from rioni.storage.kafka.client import SILENCE, Connection, to_unavailable
from rioni.storage.kafka.topics.admin import Admin


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

    def __init__(self, connection: Connection) -> None:
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


def _client_error(connection: Connection) -> str:
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
