"""Event types whose events are stored in Kafka."""

import json
import uuid

import pytest

from rioni.cli.cluster.servers import HOST, free_ports
from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import PROMETHEUS, open_stream, running_server
from tests.support.verification import findings
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("data") / "rioni"


@pytest.fixture(scope="module")
def server(kafka_cluster, data):
    """A server with two workers, whose event types are created in Kafka."""
    timeouts = {"RIONI_APPEND_TIMEOUT_S": "5", "RIONI_KAFKA_REQUEST_TIMEOUT_S": "5"}
    environment = timeouts | {"RIONI_KAFKA": kafka_cluster.kafka}
    with running_server(data, "--workers", "2", environment=environment) as running:
        with running.client() as client:
            storage = {
                "id": "kafka",
                "storage_type": "kafka",
                "kafka_configuration": {"topic_prefix": f"{uuid.uuid4()}-"},
            }
            assert client.post("/storages", json=storage | {"default": True}).status_code == 201
        yield running


def order_ids(events):
    return [each["order_id"] for each in events]


def test_published_events_are_read_by_low_level_streams(client, create, publish, server, name):
    create(name)
    publish(name, "0", "1", "2")
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit=4&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path, headers=BEGIN) as stream:
        first = stream.filled_batch()
        assert first["cursor"] == {"partition": "0", "offset": "001-0001-000000000000000000"}
        assert order_ids(first["events"] + stream.events(2)) == ["0", "1", "2"]
        publish(name, "3")
        assert order_ids(stream.events(1)) == ["3"]
    (partition,) = client.get(f"/event-types/{name}/partitions").json()
    assert partition["oldest_available_offset"] == "001-0001-000000000000000000"
    assert partition["newest_available_offset"] == "001-0001-000000000000000003"


def test_published_events_are_read_and_committed_by_subscriptions(client, create, publish, subscribe, server, name):
    create(name)
    subscription = subscribe(name, read_from="begin")
    publish(name, "0", "1")
    path = f"/subscriptions/{subscription}/events?batch_limit=2&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        batch = stream.filled_batch()
        assert order_ids(batch["events"]) == ["0", "1"]
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        commit = f"/subscriptions/{subscription}/cursors"
        assert client.post(commit, json={"items": [batch["cursor"]]}, headers=headers).status_code == 204
        publish(name, "2")
        assert order_ids(stream.events(1)) == ["2"]
    (cursor,) = client.get(f"/subscriptions/{subscription}/cursors").json()["items"]
    assert cursor["offset"] == batch["cursor"]["offset"]


def test_event_types_move_to_kafka_and_back(client, create, publish, name):
    create(name, **partitions(2))
    publish(name, *"abc")
    for storage_id, order_id in (("default", "d"), ("kafka", "e"), ("kafka", "f")):
        switched = client.post(f"/event-types/{name}/timelines", json={"storage_id": storage_id})
        assert switched.status_code == 201, switched.text
        publish(name, order_id)
    assert [each["storage_id"] for each in client.get(f"/event-types/{name}/timelines").json()] == [
        "kafka",
        "default",
        "kafka",
        "kafka",
    ]
    cursors = {"X-Nakadi-Cursors": json.dumps([{"partition": p, "offset": "BEGIN"} for p in "01"])}
    with open_stream(client, f"/event-types/{name}/events?stream_limit=6", headers=cursors) as stream:
        assert sorted(order_ids(stream.events(6))) == list("abcdef")


def test_repeated_batches_and_events_are_stored_once(client, create, name):
    create(name, **partitions(3), annotations={"rioni.io/idempotent-publishing": "on"})
    batch = [event("a"), event("b"), event("c")]
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    path = f"/event-types/{name}/events"
    # Whichever worker answers.
    for _ in range(4):
        assert client.post(path, json=batch, headers=headers).status_code == 200
        assert client.post(path, json=batch).status_code == 200
    problem(client.post(path, json=batch[:1], headers=headers), 422, "another batch was stored under this key")
    newest = [each["newest_available_offset"] for each in client.get(f"/event-types/{name}/partitions").json()]
    assert sum(int(offset.rpartition("-")[2]) + 1 for offset in newest if not offset.endswith("-1")) == 3


def test_timelines_in_kafka_can_be_verified_while_the_server_runs(create, publish, kafka_cluster, data, name):
    create(name, **partitions(2))
    publish(name, "0", "1")
    assert findings(Config(data=data, kafka=kafka_cluster.kafka)) == []
    # Verification really reads Kafka: without Kafka it fails.
    (unused_port,) = free_ports(1)
    with pytest.raises(Unavailable):
        findings(Config(data=data, kafka=f"{HOST}:{unused_port}", kafka_request_timeout_s=1))


def test_metrics_include_kafka(client, create, publish, name):
    create(name)
    publish(name, "0")
    count = next(
        line
        for line in client.get("/metrics", headers=PROMETHEUS).text.splitlines()
        if line.startswith("rioni_kafka_append_seconds_count")
    )
    assert float(count.split()[-1]) >= 1


def test_a_deleted_event_type_ends_its_streams(client, create, publish, server, name):
    create(name)
    publish(name, "0")
    path = f"/event-types/{name}/events?batch_limit=1&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path, headers=BEGIN) as stream:
        assert order_ids(stream.events(1)) == ["0"]
        assert client.delete(f"/event-types/{name}").status_code == 200
        assert "deleted" in json.dumps(stream.batches()[-1])


def test_an_unavailable_kafka_stops_only_event_types_stored_there(
    client, create, publish, other_kafka_cluster, server, name
):
    away, storage_id = f"{name}.away", uuid.uuid4().hex
    configuration = {"bootstrap_servers": other_kafka_cluster.kafka}
    storage = {"id": storage_id, "storage_type": "kafka", "kafka_configuration": configuration}
    assert client.post("/storages", json=storage).status_code == 201
    for each in (name, away):
        create(each)
        publish(each, "0")
    assert client.post(f"/event-types/{away}/timelines", json={"storage_id": storage_id}).status_code == 201
    publish(away, "1")
    (broker,) = other_kafka_cluster.kafkas
    broker.kill()
    try:
        unknown = client.post(f"/event-types/{away}/events", json=[event("2")])
        assert unknown.status_code == 503 or [each["detail"] for each in unknown.json()] == ["timed out"]
        publish(name, "1")
        assert len(read(server, name, 2)) == 2
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert any(storage_id in each for each in ready.json()["checks"]["kafka"]["warnings"])
    finally:
        broker.start()
        broker.wait()
    wait_until(lambda: client.post(f"/event-types/{away}/events", json=[event("3")]).status_code == 200)
    read_again = order_ids(read(server, away, 3))
    assert [each for each in read_again if each != "2"] == ["0", "1", "3"]


def read(server, name, count):
    path = f"/event-types/{name}/events?stream_limit={count}&batch_flush_timeout=1"
    with server.client() as client, open_stream(client, path, headers=BEGIN) as stream:
        return stream.events(count)
