"""Event types change their storage and partitions while clients publish and consume (in both modes)."""

import uuid

import pytest

from tests.acceptance.conftest import partitions
from tests.support.load import running_load
from tests.support.nodes import running_nodes
from tests.support.server import running_server


EMBEDDED = ["second", "default", "default", "second"]
KAFKA = ["kafka", "other-kafka", "default", "kafka", "kafka"]
"""From the embedded storage to Kafka, from there to another Kafka, back, and to Kafka's next topic."""
CLUSTER = ["other-kafka", "default", "default"]
"""Two nodes: from one Kafka to another one, back, and to the next topic."""
ROUTES = {"embedded": EMBEDDED, "kafka": KAFKA, "cluster": CLUSTER}


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
        pytest.param(
            "cluster", marks=[pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]
        ),
    ],
)
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def server(mode, request, tmp_path_factory):
    """A server with two workers, or two nodes, and several storages."""
    storages = []
    if mode != "cluster":
        storages.append({"id": "second", "storage_type": "embedded", "kafka_configuration": {}})
    if mode != "embedded":
        kafkas = {"kafka": "kafka_cluster", "other-kafka": "other_kafka_cluster"}
        for name, fixture in kafkas.items():
            servers = request.getfixturevalue(fixture).kafka
            configuration = {"topic_prefix": f"{uuid.uuid4()}-", "bootstrap_servers": servers}
            storages.append({"id": name, "storage_type": "kafka", "kafka_configuration": configuration})
    with started(mode, request, tmp_path_factory.mktemp("data")) as running:
        with running.client() as client:
            for storage in storages:
                assert client.post("/storages", json=storage).status_code == 201
        yield running
    log = "".join(running.lines)
    assert "Traceback" not in log, log[log.index("Traceback") - 200 :][:5_000]


def started(mode, request, data):
    if mode == "cluster":
        return running_nodes(data, environment=request.getfixturevalue("cluster_environment")())
    kafka = {"RIONI_KAFKA": request.getfixturevalue("kafka_cluster").kafka} if mode == "kafka" else {}
    return running_server(data / "rioni", "--workers", "2", environment=kafka)


def test_no_event_is_lost_duplicated_or_reordered_while_timelines_and_partitions_change(
    server, client, create, subscribe, mode, name
):
    create(name, **partitions(2), partition_strategy="hash", partition_key_fields=["order_id"])
    subscription = subscribe(name, read_from="begin")
    route = ROUTES[mode]
    with running_load(server, name, subscription, 2) as load:
        for round_, storage_id in enumerate(route):
            load.until_more(60)
            switched = client.post(f"/event-types/{name}/timelines", json={"storage_id": storage_id})
            assert switched.status_code == 201, (storage_id, switched.elapsed, switched.text, server.lines[-20:])
            load.until_more(60)
            count = client.put(f"/event-types/{name}/partition-count", json={"partition_count": 3 + round_ // 2})
            assert count.status_code == 204, count.text
        load.until_more(60)
    load.check()
    timelines = client.get(f"/event-types/{name}/timelines").json()
    assert [each["storage_id"] for each in timelines] == ["default", *route]
