import itertools
import uuid

import pytest

from tests.support.builders import event_type_body
from tests.support.server import running_server


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One real server with two workers for all tests of the API; every test uses names of its own."""
    with running_server(tmp_path_factory.mktemp("data") / "rioni", "--workers", "2") as running:
        yield running


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


STATISTIC = {"messages_per_minute": 1, "message_size": 1}


def partitions(count):
    """The member of an event type that gives it so many partitions."""
    return {"default_statistic": STATISTIC | {"read_parallelism": count, "write_parallelism": count}}


def event(order_id="1", **members):
    """A valid event of `event_type_body`."""
    metadata = {"eid": str(uuid.uuid4()), "occurred_at": "2026-11-20T10:00:00Z"} | members.pop("metadata", {})
    return {"order_id": order_id, "metadata": metadata, **members}


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
