import itertools
import json
import uuid
from functools import partial

import pytest

from tests.support.browser import browser  # noqa: F401 - a fixture
from tests.support.builders import event_type_body
from tests.support.modes import SETTINGS, modes_of
from tests.support.server import running_server
from tests.support.tables import rows as rows  # noqa: PLC0414 - for the tests beside this


def pytest_generate_tests(metafunc):
    """Run tests of the server fixture of this file in the modes given by `--mode`."""
    if "server" in metafunc.fixturenames and not hasattr(metafunc.module, "server"):
        metafunc.parametrize("server", modes_of(metafunc), indirect=True, scope="package")


@pytest.fixture(scope="package")
def embedded_server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "2", environment=SETTINGS) as running:
        yield running


@pytest.fixture(scope="package")
def server(request):
    """The server of all API tests, each with its own names: a server with two workers, or two nodes.

    Both stay until the last of them has run: pytest closes a fixture whenever the next test wants another parameter.
    """
    return request.getfixturevalue({"embedded": "embedded_server", "cluster": "cluster_nodes"}[request.param])


@pytest.fixture
def client(server):
    with server.client() as client:
        yield client


_numbers = itertools.count(1)


@pytest.fixture
def name():
    """The name of an event type that no other test uses."""
    return f"test.event-{uuid.uuid4().hex[:8]}-{next(_numbers)}"


@pytest.fixture
def create(client):
    """Creates an event type and returns its name."""

    def create(name, **changes):
        response = client.post("/event-types", json=event_type_body(name=name, **changes))
        assert response.status_code == 201, response.text
        return name

    return create


@pytest.fixture
def subscribe(client):
    """Creates a subscription and returns its id."""

    def subscribe(*event_types, **changes):
        body = {"owning_application": f"app-{uuid.uuid4().hex[:8]}", "event_types": list(event_types), **changes}
        response = client.post("/subscriptions", json=body)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    return subscribe


@pytest.fixture
def switch(client):
    """Switches features on, and off again after the test; a call with False switches them off earlier."""
    switched = []

    def switch(feature, enabled=True):
        switched.append(feature)
        assert client.post("/settings/features", json={"feature": feature, "enabled": enabled}).status_code == 204

    yield switch
    for feature in switched:
        client.post("/settings/features", json={"feature": feature, "enabled": False})


STATISTIC = {"messages_per_minute": 1, "message_size": 1}


FULL_STATISTIC = STATISTIC | {"read_parallelism": 1, "write_parallelism": 1}
ATTRIBUTE = {"data_type": "user", "value": "alice"}
AUTHORIZATION = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE], "writers": [ATTRIBUTE]}
SELECTOR = {"type": "path", "name": "team", "value": "order_id"}


def json_schema(**members):
    """The member `schema` of an event type."""
    return {"type": "json_schema", "schema": json.dumps(members)}


def partitions(count):
    """The member of an event type that sets the number of partitions."""
    return {"default_statistic": STATISTIC | {"read_parallelism": count, "write_parallelism": count}}


def event(order_id="1", **members):
    """A valid event of `event_type_body`."""
    metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"} | members.pop("metadata", {})
    return {"order_id": order_id, "metadata": metadata, **members}


def publish_orders(client, name, *order_ids, **members):
    """Publish orders to an event type, and check that all are accepted."""
    response = client.post(f"/event-types/{name}/events", json=[event(each, **members) for each in order_ids])
    assert response.status_code == 200, response.text


@pytest.fixture
def publish(client):
    """Publishes orders to an event type, and checks that all are accepted."""
    return partial(publish_orders, client)


def problem(response, status, detail=None):
    """Check that a response is a problem."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status
    assert body["title"]
    if detail is not None:
        assert detail in body.get("detail", ""), body
    return body
