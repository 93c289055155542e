"""A ZooKeeper or a Kafka that has lost the shared state of a cluster is detected at start."""

import contextlib
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from rioni.commands.event_types import CreateEventType
from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.system.anchors import DataMismatch
from rioni.domain.system.settings import LossAccepted
from rioni.domain.timelines.position import EventTypePartition
from rioni.installation import kafka
from rioni.installation.acceptance import accept_loss
from rioni.installation.anchoring import StoreMarks
from rioni.installation.database import cluster_identity, database_lease
from rioni.installation.infrastructure import build_infrastructure
from rioni.server.startup import prepare_startup
from rioni.storage.zookeeper.nodes import INSTALLATION
from tests.support.builders import event_type_spec
from tests.support.verification import problems
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.postgres, pytest.mark.zookeeper]

PARTITION = EventTypePartition("a", "0")


@contextlib.contextmanager
def running(config: Config):
    """A node without HTTP, which records its high-water marks when it stops."""
    with prepare_startup(config) as directory, contextlib.closing(build_infrastructure(config, directory)) as base:
        yield base
        StoreMarks(base).note(everything=True)


@pytest.fixture
def path() -> str:
    return f"/{uuid4()}"


@pytest.fixture
def config(tmp_path: Path, path, postgres_url, zookeeper_cluster) -> Config:
    """The settings of a node that has committed cursors; Kafka is not needed for that."""
    config = Config(
        data=tmp_path / "node",
        database=postgres_url(),
        kafka="127.0.0.1:1",
        zookeeper=f"{zookeeper_cluster.zookeeper}{path}",
        kafka_request_timeout_s=1,
    )
    for _ in range(3):
        with running(config) as base:
            base.adapters.coordinator.initialise("s", {PARTITION: "001-0001--1"})
    return config


@pytest.fixture
def zookeeper(zookeeper_cluster):
    client = KazooClient(zookeeper_cluster.zookeeper)
    client.start(timeout=WAIT_S)
    yield client
    client.stop()
    client.close()


def refusal(config: Config) -> str:
    """The error of a rejected start."""
    with pytest.raises(DataMismatch) as refused, running(config):
        pass
    return str(refused.value)


def accepted(config: Config, found: list[str]) -> None:
    """Check that the accepted loss is recorded, and that nodes start again."""
    assert accept_loss(config, "again") == []
    for _ in range(2):
        with running(config) as base:
            events = [entry.event for entry in base.log.entries(0, 100)]
            assert [each for each in events if isinstance(each, LossAccepted)] == [
                LossAccepted(findings=tuple(found), reason="the disk died")
            ]


def test_an_emptied_zookeeper_is_rejected_until_the_loss_is_accepted(config, zookeeper, path):
    zookeeper.delete(path, recursive=True)
    text = refusal(config)
    assert f"The path {path} of ZooKeeper does not hold what was written there" in text
    assert "accept-loss" in text
    accepted(config, accept_loss(config, "the disk died"))


def test_an_older_zookeeper_is_rejected_until_the_loss_is_accepted(config, zookeeper, path):
    data, stat = zookeeper.get(f"{path}{INSTALLATION}")
    assert stat.version >= 3
    # An older snapshot looks like this: everything exists, with fewer changes.
    zookeeper.delete(f"{path}{INSTALLATION}")
    zookeeper.create(f"{path}{INSTALLATION}", data)
    assert f"older than the registry: its state has the number 0, and {stat.version} was recorded" in refusal(config)
    accepted(config, accept_loss(config, "the disk died"))


def test_the_number_of_changes_rises_only_with_changes(config):
    with running(config) as base:
        installation, advance = StoreMarks(base)._installation, base.adapters.advance
        first = advance(installation)
        assert advance(installation) is None
        base.adapters.coordinator.initialise("t", {PARTITION: "001-0001--1"})
        assert advance(installation) == first + 1


def test_nothing_is_accepted_while_a_node_runs(config, tmp_path):
    other = msgspec.structs.replace(config, data=tmp_path / "other", database_lock_timeout_s=1)
    with (
        running(config),
        contextlib.closing(database_lease(config, cluster_identity(config, "node")).acquire(5)),
        pytest.raises(Unavailable, match="a node with zookeeper path"),
    ):
        accept_loss(other, "x")


@pytest.mark.kafka
def test_a_kafka_that_lost_topics_is_rejected_until_the_loss_is_accepted(config, kafka_cluster, monkeypatch):
    monkeypatch.setattr(kafka, "CONFIRM_S", 0.2)
    config = msgspec.structs.replace(config, kafka=kafka_cluster.kafka, kafka_request_timeout_s=10)
    with running(config) as base:
        base.bus.dispatch(CreateEventType(spec=event_type_spec(name="a")), base.system_context())
        base.registry.refresh()
        timeline = base.registry.timelines("a").active
        base.adapters.stores.of("default").append(timeline.topic, {0: [b"{}"] * 10})
    admin = AdminClient({"bootstrap.servers": kafka_cluster.kafka})
    admin.delete_topics([timeline.topic])[timeline.topic].result()
    wait_until(lambda: timeline.topic not in admin.list_topics(timeout=WAIT_S).topics)
    assert "Kafka lacks the topics of 1 event type: a" in refusal(config)
    accepted(config, accept_loss(config, "the disk died"))
    with running(config) as base:
        assert [each.order for each in base.registry.timelines("a").timelines] == [1, 2]


def test_a_restored_cluster_is_compared_and_the_finding_says_what_to_do(config, path, zookeeper):
    assert problems(config, restored=True) == []
    zookeeper.delete(path, recursive=True)
    (found,) = problems(config, restored=True)
    assert found.store == "restored"
    assert "was emptied" in found.text
    assert "accept-loss" in found.text
    assert zookeeper.exists(f"{path}/{INSTALLATION}") is None, "nothing was claimed"
