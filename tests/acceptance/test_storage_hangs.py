"""A hanging Kafka delays only what needs it, until its deadline; everything else in the registry continues at once."""

import threading
import time
import uuid

import pytest

from tests.acceptance.conftest import partitions
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import wait_until


pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TIMEOUT_S = 30
"""Long enough for all other requests, also on a busy machine."""


@pytest.fixture(scope="module")
def server(other_kafka_cluster, tmp_path_factory):
    environment = {
        "RIONI_KAFKA": other_kafka_cluster.kafka,
        "RIONI_KAFKA_REQUEST_TIMEOUT_S": str(TIMEOUT_S),
        "RIONI_APPEND_TIMEOUT_S": str(TIMEOUT_S),
    }
    data = tmp_path_factory.mktemp("data") / "rioni"
    with running_server(data, "--workers", "1", environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def storage(server):
    """A storage in Kafka."""
    configuration = {"topic_prefix": f"{uuid.uuid4()}-"}
    with server.client() as client:
        body = {"id": "kafka", "storage_type": "kafka", "kafka_configuration": configuration}
        assert client.post("/storages", json=body).status_code == 201
        feature = {"feature": "repartitioning", "enabled": True}
        assert client.post("/settings/features", json=feature).status_code == 204
    return "kafka"


@pytest.fixture
def paused(other_kafka_cluster):
    """Suspends the only broker of Kafka until the test ends."""
    broker = other_kafka_cluster.kafkas[0]

    def pause():
        broker.pause()
        return broker

    yield pause
    broker.resume()
    broker.wait()


class Request(threading.Thread):
    """A request that may take long, over its own connection."""

    def __init__(self, server, method, path, body=None):
        super().__init__()
        self._server, self.request = server, (method, path, body)
        self.response = None
        self.outcome = "no answer"
        self.start()

    def run(self):
        method, path, body = self.request
        begin = time.monotonic()
        with self._server.client() as client:
            self.response = client.request(method, path, json=body, timeout=20 * TIMEOUT_S)
        duration = time.monotonic() - begin
        self.outcome = f"{self.response.status_code} {self.response.text} after {duration:.1f} s"


def in_kafka(client, storage, name):
    """Create an event type whose events are in Kafka."""
    client.put(f"/storages/default/{storage}")
    response = client.post("/event-types", json=event_type_body(name=name, **partitions(1)))
    assert response.status_code == 201, response.text
    client.put("/storages/default/default")


def test_a_hanging_kafka_stops_no_change_that_does_not_need_it(server, client, storage, name, paused):
    """Reference operations#server-deadlines."""
    other = f"{name}.embedded"
    for each in "abc":
        in_kafka(client, storage, f"{name}.{each}")
    assert client.post("/event-types", json=event_type_body(name=other)).status_code == 201
    assert client.put(f"/storages/default/{storage}").status_code == 200
    broker = paused()
    hanging = [
        *(Request(server, "POST", "/event-types", event_type_body(name=f"{name}.new{number}")) for number in range(3)),
        Request(server, "POST", f"/event-types/{name}.a/timelines", {"storage_id": "default"}),
        Request(server, "PUT", f"/event-types/{name}.b/partition-count", {"partition_count": 2}),
        Request(server, "DELETE", f"/event-types/{name}.c"),
    ]
    wait_until(lambda: client.get(f"/event-types/{name}.c").status_code == 404)
    for enabled in (True, False) * 3:
        feature = {"feature": "event_owner_selector_authz", "enabled": enabled}
        assert client.post("/settings/features", json=feature).status_code == 204
    assert client.put("/storages/default/default").status_code == 200
    assert client.post("/event-types", json=event_type_body(name=f"{other}.2")).status_code == 201
    subscription = {"owning_application": name, "event_types": [other, f"{name}.a"]}
    assert client.post("/subscriptions", json=subscription).status_code == 201
    assert client.put(f"/event-types/{other}", json=event_type_body(name=other, audience="company-internal")).is_success
    answered = [f"{request.request}: {request.outcome}" for request in hanging if not request.is_alive()]
    assert not answered, "everything else was to be answered while all of these were waiting"

    for request in hanging:
        request.join()
    *created, switched, repartitioned, deleted = (request.response.status_code for request in hanging)
    assert (created, switched, repartitioned, deleted) == ([503] * 3, 503, 503, 200)
    for number in range(3):
        assert client.get(f"/event-types/{name}.new{number}").status_code == 404
    broker.resume()
    # The switch could only be completed, and is.
    timelines = f"/event-types/{name}.a/timelines"
    wait_until(lambda: [each["storage_id"] for each in client.get(timelines).json()] == ["kafka", "default"])
    in_kafka(client, storage, f"{name}.new0")
