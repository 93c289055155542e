"""The retention time of an event type, raised and lowered during a stream (reference timelines#kept-events).

Source: reference timelines#retention.
"""

import uuid

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.acceptance.conftest import SETTINGS, publish_orders
from tests.support.nodes import running_nodes
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
LONG, SHORT = {"retention_time": 345_600_000}, {"retention_time": 1}
OFTEN = SETTINGS | {"RIONI_RETENTION_INTERVAL_S": "1", "RIONI_RETENTION_MIN_MS": "1"}
ROUNDS = 2
"""Rounds of retention after which at least one run has been complete."""


@pytest.fixture(
    scope="module",
    params=[
        "embedded",
        pytest.param(
            "cluster", marks=[pytest.mark.kafka, pytest.mark.zookeeper, pytest.mark.postgres, pytest.mark.slow]
        ),
    ],
)
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def server(mode, request, tmp_path_factory):
    """A server that runs retention every second, and has another storage."""
    data = tmp_path_factory.mktemp("data")
    other = {"id": "other", "storage_type": "embedded", "kafka_configuration": {}}
    if mode == "cluster":
        other |= {"storage_type": "kafka", "kafka_configuration": {"topic_prefix": f"{uuid.uuid4()}-"}}
        started = running_nodes(data, environment=OFTEN | request.getfixturevalue("cluster_environment")())
    else:
        started = running_server(data / "rioni", "--workers", "2", environment=OFTEN)
    with started as running:
        with running.client() as client:
            assert client.post("/storages", json=other).status_code == 201
        yield running
    assert "Traceback" not in "".join(running.lines)


def keep(client, name, options):
    body = client.get(f"/event-types/{name}").json() | {"options": options}
    assert client.put(f"/event-types/{name}", json=body).status_code == 200


def switch(client, name, storage_id):
    assert client.post(f"/event-types/{name}/timelines", json={"storage_id": storage_id}).status_code == 201


def ends(client, name):
    """The oldest and the newest offset; if no events are left, the oldest is greater than the newest."""
    found = client.get(f"/event-types/{name}/partitions/0").json()
    return found["oldest_available_offset"], found["newest_available_offset"]


def until_empty(client, name):
    return wait_until(lambda: (found := ends(client, name))[0] > found[1] and found)


def rounds_pass(client, forgetful):
    """Wait for some retention runs, observed by an event type whose events expire at once."""
    for _ in range(ROUNDS):
        publish_orders(client, forgetful, "x")
        until_empty(client, forgetful)


def read(stream, count):
    return [each["order_id"] for each in stream.events(count)]


def test_events_expire_by_the_current_retention_time_and_streams_continue(server, client, create, name):
    """Reference timelines#expired-events, timelines#cleanup."""
    create(name, options=LONG)
    forgetful = create(f"{name}-forgetful", options=SHORT)
    path = f"/event-types/{name}/events?batch_limit=1&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path, headers=BEGIN) as reader:
        for order_id, storage_id in enumerate(("other", "default")):
            publish_orders(client, name, str(order_id))
            switch(client, name, storage_id)
        publish_orders(client, name, "2")
        assert read(reader, 3) == ["0", "1", "2"]

        rounds_pass(client, forgetful)
        assert ends(client, name) == ("001-0001-000000000000000000", "001-0003-000000000000000000")

        keep(client, name, SHORT)
        assert until_empty(client, name) == ("001-0003-000000000000000001", "001-0003-000000000000000000")
        # The closed timelines have been deleted as a whole.
        assert client.delete("/storages/other").status_code == 204

        keep(client, name, LONG)
        publish_orders(client, name, "3")
        assert read(reader, 1) == ["3"]
        rounds_pass(client, forgetful)
        with open_stream(client, f"{path}&stream_limit=1", headers=BEGIN) as from_begin:
            assert read(from_begin, 1) == ["3"]
        assert ends(client, name) == ("001-0003-000000000000000001",) * 2


@pytest.mark.kafka
@pytest.mark.parametrize("mode", ["cluster"], indirect=True)
def test_kafka_itself_deletes_nothing_whatever_the_retention_time(server, client, create, name, kafka_cluster):
    create(name, options=LONG)
    switch(client, name, "default")
    topics = [each["topic"] for each in client.get(f"/event-types/{name}/timelines").json()]
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient({"bootstrap.servers": kafka_cluster.kafka})
    for options in (LONG, {"retention_time": 10_800_000}, LONG):
        keep(client, name, options)
        for answer in admin.describe_configs(resources).values():
            assert {answer.result()[each].value for each in ("retention.ms", "retention.bytes")} == {"-1"}
