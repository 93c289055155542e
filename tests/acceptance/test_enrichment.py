"""Enrichment of metadata: reference publishing#enrichment, row by row."""

import json

import pytest

from tests.acceptance.conftest import event, partitions
from tests.support.builders import SCHEMA, event_type_body
from tests.support.server import open_stream


def stored(client, name, count=1, partition_count=1):
    """The metadata of the events of an event type."""
    cursors = json.dumps([{"partition": str(number), "offset": "BEGIN"} for number in range(partition_count)])
    path = f"/event-types/{name}/events?batch_limit=1&stream_limit={count}"
    with open_stream(client, path, headers={"X-Nakadi-Cursors": cursors}) as stream:
        return [each["metadata"] for each in stream.events(count)]


@pytest.mark.parametrize(
    ("metadata", "flow_id"),
    [({"flow_id": "mine"}, "mine"), ({"flow_id": ""}, "the request's"), ({}, "the request's")],
)
def test_a_flow_id_is_kept_if_it_is_not_empty(client, create, name, metadata, flow_id):
    create(name)
    client.post(f"/event-types/{name}/events", json=[event(metadata=metadata)], headers={"X-Flow-Id": "the request's"})
    assert stored(client, name)[0]["flow_id"] == flow_id


@pytest.mark.parametrize(
    "strategy", [{}, {"partition_strategy": "hash", "partition_key_fields": ["order_id"]}], ids=["random", "hash"]
)
def test_the_partition_is_the_assigned_one(client, create, name, strategy):
    create(name, **strategy, **partitions(3))
    client.post(f"/event-types/{name}/events", json=[event("ABC-123", metadata={"partition": "99"})])
    (metadata,) = stored(client, name, partition_count=3)
    newest = client.get(f"/event-types/{name}/partitions/{metadata['partition']}").json()["newest_available_offset"]
    assert newest == "001-0001-000000000000000000"
    assert not strategy or metadata["partition"] == "2", "reference publishing#partitioning"


def test_the_version_is_the_latest_schema_version(client, create, name):
    create(name)
    wider = json.loads(SCHEMA)
    wider["properties"]["more"] = {}
    body = event_type_body(name=name, schema={"type": "json_schema", "schema": json.dumps(wider)})
    for _ in range(2):
        client.post(f"/event-types/{name}/events", json=[event()])
        assert client.put(f"/event-types/{name}", json=body).status_code == 200
    assert [metadata["version"] for metadata in stored(client, name, 2)] == ["1.0.0", "1.1.0"]


@pytest.mark.parametrize("member", ["published_by", "received_at", "version"])
def test_publishers_can_not_set_fields_of_the_broker(client, create, name, member):
    create(name)
    response = client.post(f"/event-types/{name}/events", json=[event(metadata={member: "x"})])
    assert response.status_code == 422
    assert response.json()[0]["detail"] == (
        f"#/metadata: extraneous key [{member}] is not permitted: the broker sets it, leave it out"
    )


def test_every_member_of_a_data_change_is_enriched_too(client, create, name):
    create(name, category="data")
    change = {"data_type": "order", "data_op": "C", "data": {"order_id": "1"}, "metadata": event()["metadata"]}
    client.post(f"/event-types/{name}/events", json=[change], headers={"X-Flow-Id": "mine"})
    (metadata,) = stored(client, name)
    assert metadata.pop("received_at").endswith("Z")
    assert metadata == change["metadata"] | {
        "published_by": "unauthenticated",
        "event_type": name,
        "flow_id": "mine",
        "partition": "0",
        "version": "1.0.0",
    }
