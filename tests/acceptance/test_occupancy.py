"""A PostgreSQL database belongs to one broker, or to one cluster: others are rejected, whatever their settings."""

import pytest

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.operations.migration import migrate
from tests.support.server import refused_start, running_server


pytestmark = [pytest.mark.postgres, pytest.mark.slow]

SHORT_TIMEOUT = {"RIONI_DATABASE_LOCK_TIMEOUT_S": "1"}
"""The timeout of brokers that wait for a database in use."""


@pytest.fixture
def alone(postgres_url):
    """The settings of a broker with its registry in PostgreSQL, and nothing else there."""
    return {"RIONI_DATABASE": postgres_url()}


def refusal(data, environment):
    """The error of a broker that is rejected."""
    said = refused_start(data, "--workers", "1", environment={**environment, **SHORT_TIMEOUT})
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_a_second_broker_is_rejected_and_a_killed_one_may_restart(tmp_path, alone):
    with running_server(tmp_path / "one", "--workers", "2", environment=alone) as server, server.client() as client:
        answer = refusal(tmp_path / "two", alone)
        assert answer.startswith("Error: The database is in use by a broker without zookeeper on ")
        assert "Stop the other broker or use another database." in answer
        assert client.get("/readyz").json()["checks"]["database"]["status"] == "ok"
        server.kill()
    with running_server(tmp_path / "one", "--workers", "2", environment=alone) as server, server.client() as client:
        assert client.get("/event-types").status_code == 200
    # The database is free again, and its cursors are in the directory of the first broker.
    assert "accept-loss" in refusal(tmp_path / "two", alone)


@pytest.mark.kafka
@pytest.mark.zookeeper
def test_nodes_of_one_cluster_share_a_database_and_nodes_of_others_are_rejected(tmp_path, cluster_environment):
    shared = cluster_environment()
    alone = {name: value for name, value in shared.items() if name != "RIONI_ZOOKEEPER"}
    elsewhere = shared | {"RIONI_ZOOKEEPER": f"{shared['RIONI_ZOOKEEPER']}/elsewhere"}
    with running_server(tmp_path / "source", "--workers", "1"):
        pass
    with (
        running_server(tmp_path / "one", "--workers", "1", environment=shared),
        running_server(tmp_path / "two", "--workers", "1", environment=shared | with_other_host_names(shared)),
    ):
        for other in (alone, elsewhere):
            assert "in use by a node with zookeeper path /" in refusal(tmp_path / "other", other)
        settings = {name.removeprefix("RIONI_").lower(): value for name, value in shared.items()}
        target = Config(**settings, database_lock_timeout_s=1)
        with pytest.raises(Unavailable, match="in use by a node with zookeeper path /"):
            migrate(tmp_path / "source", target, lambda *_: None)


def with_other_host_names(shared):
    """Settings that name the same ZooKeeper servers by other host names."""
    return {"RIONI_ZOOKEEPER": shared["RIONI_ZOOKEEPER"].replace("127.0.0.1", "localhost")}
