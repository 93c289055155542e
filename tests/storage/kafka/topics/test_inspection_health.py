import pytest
from structlog.testing import capture_logs

from rioni.cli.cluster.servers import free_ports
from rioni.domain.errors import Unavailable
from rioni.storage.kafka.client import KafkaConnection
from rioni.storage.kafka.topics.admin import Admin
from rioni.storage.kafka.topics.inspection import ClusterHealth


def test_the_reason_of_a_failed_connection_is_logged_once_and_not_shown_to_clients():
    (port,) = free_ports(1)
    connection = KafkaConnection(bootstrap_servers=f"127.0.0.1:{port}")
    admin, health = Admin(connection), ClusterHealth(connection)
    with capture_logs() as logged:
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"^No Kafka broker responds") as caught:
                health.check(admin)
            assert str(port) not in str(caught.value)
    (line,) = logged
    assert line["servers"] == connection.bootstrap_servers
    assert "Connection refused" in line["error"]
