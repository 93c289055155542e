"""Whether a cluster of Kafka answers, and whether it keeps what it has acknowledged."""

from confluent_kafka.admin import AdminClient

from rioni.domain.errors import Unavailable
from rioni.domain.health import Health
from rioni.storage.kafka.client import Connection, asked


ANSWER_TIMEOUT_S = 2.0

SINGLE = (
    "Kafka has a single broker: what was acknowledged can be lost when its machine loses power, because Kafka does not "
    "wait for the disk. Run three."
)
ONE_COPY_ENOUGH = (
    "Kafka acknowledges what a single broker has (min.insync.replicas is 1), and it can be lost with that broker. Run "
    "three brokers, and have at least two copies in `min_insync_replicas`."
)


def cluster_health(admin: AdminClient, connection: Connection) -> Health:
    """Ask a broker which others live; blocks.

    Raises:
        Unavailable: none answers.
    """
    answer = admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S)
    try:
        cluster = asked(lambda: answer.result(ANSWER_TIMEOUT_S), "")
    except TimeoutError as ex:
        raise Unavailable("No broker of Kafka answers.") from ex
    brokers = len(cluster.nodes)
    _, enough = connection.copies(brokers)
    warnings = (SINGLE,) if brokers == 1 else (ONE_COPY_ENOUGH,) if enough == 1 else ()
    return Health(detail=f"brokers: {brokers}", warnings=warnings)
