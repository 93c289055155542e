"""`/storages`: reference settings-and-storages#storage-members.

Source: reference settings-and-storages#storages.
"""

import uuid

import pytest

from tests.acceptance.conftest import event, problem
from tests.support.builders import event_type_body
from tests.support.server import open_stream


EXHIBITOR = {"exhibitor_address": "e", "exhibitor_port": 8181, "zk_address": "z:2181", "zk_path": "/nakadi"}
ZOOKEEPER = {
    "zookeeper_connection": {"type": "zookeeper", "addresses": [{"address": "z", "port": 2181}], "path": "/nakadi"}
}


@pytest.fixture
def storage_id(client):
    """An id that no other test uses."""
    return f"storage-{uuid.uuid4().hex[:12]}"


def kafka(storage_id, configuration=EXHIBITOR, **members):
    return {"id": storage_id, "storage_type": "kafka", "kafka_configuration": configuration, **members}


@pytest.mark.one_server
def test_the_default_storage_exists_from_the_start(client):
    """A new broker has one storage, in the list and by its id.

    Source: reference settings-and-storages#first-storage, settings-and-storages#list-storages,
    settings-and-storages#get-storage.
    """
    assert client.get("/storages").json()[0] == {"id": "default", "storage_type": "embedded", "default": True}
    assert client.get("/storages/default").json()["storage_type"] == "embedded"
    problem(client.get("/storages/nope"), 404, "No storage with id nope")


@pytest.mark.parametrize("configuration", [EXHIBITOR, ZOOKEEPER])
def test_a_storage_is_created_shown_and_deleted(client, storage_id, configuration):
    """A storage from its creation to its deletion.

    Source: reference settings-and-storages#create-storage, settings-and-storages#get-storage,
    settings-and-storages#delete-storage.
    """
    created = client.post("/storages", json=kafka(storage_id, configuration))
    assert created.status_code == 201
    assert created.json() == kafka(storage_id, configuration, default=False)
    assert client.get(f"/storages/{storage_id}").json() == created.json()
    assert created.json() in client.get("/storages").json()
    problem(client.post("/storages", json=kafka(storage_id)), 409, f"A storage with id '{storage_id}' already exists.")
    assert client.delete(f"/storages/{storage_id}").status_code == 204
    problem(client.get(f"/storages/{storage_id}"), 404)


def test_only_known_members_are_stored_and_no_credentials_in_them(client, storage_id):
    """Reference settings-and-storages#kafka-configuration."""
    configuration = EXHIBITOR | {
        "bootstrap_servers": "SASL_SSL://u:s3cret@k:9092, u:s3cret@l:9092",
        "zk_address": "u:s3/cr@et@z:2181",
        "sasl": {"username": "u", "password": "s3cret"},
        "pw": "s3cret",
        "brokers": [f"s3cret-{number}" for number in range(5_000)],
    }
    created = client.post("/storages", json=kafka(storage_id, configuration))
    assert created.status_code == 201
    assert created.json()["kafka_configuration"] == EXHIBITOR | {"bootstrap_servers": "SASL_SSL://k:9092,l:9092"}
    assert "s3" not in client.get("/storages").text
    client.delete(f"/storages/{storage_id}")


@pytest.mark.both_modes
def test_a_cluster_shows_the_configuration_of_its_default_storage(client, server, storage_id):
    """Reference settings-and-storages#first-storage."""
    default = client.get("/storages/default").json()
    if default["storage_type"] == "embedded":
        assert "kafka_configuration" not in default
        return
    configuration = default["kafka_configuration"]
    assert configuration == client.get("/storages").json()[0]["kafka_configuration"]
    assert configuration["bootstrap_servers"].startswith("127.0.0.1:")
    copied = client.post("/storages", json=kafka(storage_id, configuration | {"topic_prefix": f"{storage_id}-"}))
    assert copied.status_code == 201
    assert copied.json()["kafka_configuration"]["bootstrap_servers"] == configuration["bootstrap_servers"]
    client.delete(f"/storages/{storage_id}")


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"storage_type": "kafka", "kafka_configuration": {}}, 422, 'JSONObject["id"] not found.'),
        ({"id": "x", "kafka_configuration": {}}, 422, 'JSONObject["storage_type"] not found.'),
        ({"id": "x", "storage_type": "kafka"}, 422, 'JSONObject["kafka_configuration"] not found.'),
        ({"id": "x", "storage_type": "tape"}, 422, "Type 'tape' is not a valid storage type"),
        (kafka("x" * 37), 422, "1 to 36 characters"),
        (kafka("../x"), 422, "letters, digits"),
        (kafka(7), 400, "id"),
        (kafka("x", []), 400, "kafka_configuration"),
        (kafka("x", {"zk_path": {"pw": "s3cret"}}), 422, "kafka_configuration: zk_path can't be read"),
        (kafka("x", {"zk_address": "u:pw,more@z:1"}), 422, "kafka_options"),
        ([], 400, "object"),
    ],
)
def test_an_invalid_storage_is_rejected(client, body, status, detail):
    """Reference settings-and-storages#create-storage."""
    problem(client.post("/storages", json=body), status, detail)


def test_a_body_that_is_not_json_is_400(client):
    problem(client.post("/storages", content=b"{"), 400)


def test_an_unknown_storage_can_not_be_deleted_nor_made_the_default(client):
    """Reference settings-and-storages#delete-storage, settings-and-storages#default-storage."""
    problem(client.delete("/storages/nope"), 404, "Tried to remove storage that doesn't exist, id: nope")
    problem(client.put("/storages/default/nope"), 404, "Storage with id nope is not found")


@pytest.mark.one_server
def test_event_types_are_stored_in_the_default_storage_at_their_creation(client, storage_id, name):
    """The only test that changes the default storage of the server; others work with any default.

    Source: reference settings-and-storages#default-storage, settings-and-storages#delete-storage.
    """
    assert client.post("/storages", json={"id": storage_id, "storage_type": "embedded"}).status_code == 201
    made = client.put(f"/storages/default/{storage_id}")
    assert made.json() == {"id": storage_id, "storage_type": "embedded", "default": True}
    try:
        assert client.get("/storages/default").json()["default"] is False
        assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
    finally:
        assert client.put("/storages/default/default").status_code == 200
    assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200
    cursors = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
    with open_stream(client, f"/event-types/{name}/events", headers=cursors) as stream:
        assert len(stream.events(1)) == 1
    problem(
        client.delete(f"/storages/{storage_id}"), 400, f"Can't delete storage as it is still used, id: {storage_id}"
    )
    assert client.delete(f"/event-types/{name}").status_code == 200
    assert client.delete(f"/storages/{storage_id}").status_code == 204
    problem(client.delete("/storages/default"), 400, "still used")
