"""Nodes are killed during switches between storages on Kafka: others switch, publish and read, and nothing is lost."""

import contextlib
import json
import threading
from collections.abc import Iterator
from uuid import uuid4

import httpx
import psycopg
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.nodes import running_nodes
from tests.support.recording import Publisher
from tests.support.server import open_stream
from tests.support.waiting import WAIT_S, wait_until


pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres]

NAME = "order.created"
SCHEMA = '{"properties":{"number":{"type":"integer"}},"required":["number"]}'
PARTITIONS = 2
HELD = 42
HOLD_UP_COMPLETIONS = f"""
CREATE FUNCTION held_up() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock({HELD}); RETURN NEW; END $$;
CREATE TRIGGER held_up BEFORE INSERT ON log
FOR EACH ROW WHEN (NEW.topic = 'timeline.switched') EXECUTE FUNCTION held_up()
"""
SETTINGS = {"RIONI_ZOOKEEPER_SESSION_TIMEOUT_S": "2"}


class Cluster:
    """Three nodes, and proxies to hold back traffic to their shared servers."""

    def __init__(self, nodes, environment, broker) -> None:
        self.nodes = nodes
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": environment["RIONI_KAFKA"]})
        self._database = environment["RIONI_DATABASE"].replace("+psycopg", "")

    @contextlib.contextmanager
    def a_switch_that_has_begun(self, url: str, storage_id: str) -> Iterator[None]:
        """A node is asked to switch; within the block it is in the log, and the new topic does not exist yet."""
        before = self._switches()
        self._broker.pause()
        try:
            attempt = threading.Thread(target=_attempt, args=(url, storage_id))
            attempt.start()
            wait_until(lambda: self._switches() > before)
            yield
        finally:
            self._broker.resume()
        attempt.join()

    @contextlib.contextmanager
    def a_switch_that_has_closed(self, url: str, storage_id: str, topic: str) -> Iterator[None]:
        """Ask a node to switch; within the block the old topic rejects events, and the log lacks its end."""
        with psycopg.connect(self._database, autocommit=True) as connection:
            connection.execute(HOLD_UP_COMPLETIONS)
            connection.execute(f"SELECT pg_advisory_lock({HELD})")
            attempt = threading.Thread(target=_attempt, args=(url, storage_id))
            attempt.start()
            try:
                wait_until(lambda: self._is_closed(topic))
                yield
            finally:
                connection.execute(f"SELECT pg_advisory_unlock({HELD})")
                attempt.join()
                connection.execute("DROP FUNCTION held_up CASCADE")

    def _switches(self) -> int:
        with psycopg.connect(self._database) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM log WHERE topic = 'timeline.switch-started'")
            return count

    def _is_closed(self, topic: str) -> bool:
        (answer,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return answer.result()["max.message.bytes"].value == "0"


def _attempt(url: str, storage_id: str) -> None:
    with contextlib.suppress(httpx.HTTPError), httpx.Client(base_url=url, timeout=WAIT_S, verify=False) as client:
        switch(client, storage_id)


def switch(client: httpx.Client, storage_id: str) -> httpx.Response:
    return client.post(f"/event-types/{NAME}/timelines", json={"storage_id": storage_id})


def timelines(client: httpx.Client) -> list[dict]:
    return client.get(f"/event-types/{NAME}/timelines").json()


@pytest.fixture
def cluster(tmp_path, cluster_environment, other_kafka_cluster):
    environment = cluster_environment() | {"RIONI_KAFKA": other_kafka_cluster.kafka} | SETTINGS
    with running_nodes(tmp_path, count=3, environment=environment) as nodes:
        yield Cluster(nodes, environment, other_kafka_cluster.kafkas[0])


@pytest.fixture
def client(cluster):
    """A client of the node that is never killed."""
    with cluster.nodes.nodes[-1].client() as client:
        body = event_type_body(
            name=NAME,
            partition_strategy="user_defined",
            schema={"type": "json_schema", "schema": SCHEMA},
            **partitions(PARTITIONS),
        )
        assert client.post("/event-types", json=body).status_code == 201
        storage = {"id": "other", "storage_type": "kafka", "kafka_configuration": {"topic_prefix": f"{uuid4()}-"}}
        assert client.post("/storages", json=storage).status_code == 201
        yield client


@pytest.fixture
def stop():
    """Ends the publishers."""
    return threading.Event()


@pytest.fixture
def publishers(cluster, client, stop):
    """One for each partition, which publishes to all nodes in turn."""
    urls = [node.url for node in cluster.nodes.nodes]
    publishers = [Publisher(urls, NAME, str(number), stop) for number in range(PARTITIONS)]
    for publisher in publishers:
        publisher.start()
    yield publishers
    stop.set()
    for publisher in publishers:
        publisher.join()


def until_more(publishers: list[Publisher]) -> None:
    """Wait until each one has had another event acknowledged."""
    before = [len(publisher.acknowledged) for publisher in publishers]
    wait_until(lambda: all(len(each.acknowledged) > count for each, count in zip(publishers, before, strict=True)))


def read(stream, wanted: dict[str, int]) -> dict[str, list[int]]:
    """The numbers of the events of each partition, up to the last that was published."""
    found: dict[str, list[int]] = {partition: [] for partition in wanted}
    while any(number not in found[partition] for partition, number in wanted.items()):
        batch = stream.batch()
        found[batch["cursor"]["partition"]] += [each["number"] for each in batch.get("events", [])]
    return found


def test_a_node_killed_during_a_switch_locks_and_loses_nothing(cluster, client, publishers, stop):
    begin = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(PARTITIONS)])
    path = f"/event-types/{NAME}/events?batch_limit=50&batch_flush_timeout=1&stream_timeout={WAIT_S}"
    first, second, staying = cluster.nodes.nodes
    with staying.client() as other, open_stream(other, path, headers={"X-Nakadi-Cursors": begin}) as reader:
        until_more(publishers)
        with cluster.a_switch_that_has_begun(first.url, "other"):
            first.kill()
        # The next command repairs, as soon as it is known that the node has died.
        wait_until(lambda: switch(client, "other").status_code == 201)
        assert [each["storage_id"] for each in timelines(client)] == ["default", "other"]
        until_more(publishers)
        switch(client, "default")
        with cluster.a_switch_that_has_closed(second.url, "other", timelines(client)[-1]["topic"]):
            second.kill()
        # Publishers that wait at the closed topic continue in the next one: another node completes the switch.
        until_more(publishers)
        assert [each["storage_id"] for each in timelines(client)] == ["default", "other", "default", "other"]
        assert switch(client, "other").status_code == 201
        until_more(publishers)

        stop.set()
        for publisher in publishers:
            publisher.join()
            publisher.publish(client, staying.url)
        found = read(reader, {each.partition: each.acknowledged[-1] for each in publishers})
    for publisher in publishers:
        numbers = found[publisher.partition]
        assert numbers == sorted(set(numbers)), "an event came twice or out of order"
        assert set(publisher.acknowledged) <= set(numbers), "an event is lost"
        assert not set(publisher.refused) & set(numbers)
