"""Avro event types, and the schemas of binary batches: reference schemas#avro-evolution, schemas#endpoints.

Source: reference schemas#avro-schemas.
"""

import json

import fastavro
import pytest

from tests.acceptance.conftest import event, problem
from tests.support.avro import ORDER, record
from tests.support.builders import event_type_body


AVRO = {"type": "avro_schema", "schema": json.dumps(ORDER)}
WIDER = {
    "type": "avro_schema",
    "schema": json.dumps(ORDER | {"fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}),
}
NARROWER = {"type": "avro_schema", "schema": json.dumps(ORDER | {"fields": ORDER["fields"][1:]})}


def test_an_avro_event_type_is_created_shown_and_put_back(client, create, name):
    """Reference schemas#schema-members."""
    create(name, schema=AVRO)
    body = client.get(f"/event-types/{name}").json()
    assert (body["schema"]["type"], body["schema"]["schema"]) == ("avro_schema", AVRO["schema"])
    assert "json_schema" not in body
    assert client.put(f"/event-types/{name}", json=body).status_code == 200
    assert client.get(f"/event-types/{name}").json() == body


def test_a_schema_that_would_crash_decoders_is_rejected(client, name):
    """Reference schemas#avro-schema-checks."""
    schema = {"type": "avro_schema", "schema": json.dumps(record(("next", ["null", "Order"])))}
    response = client.post("/event-types", json=event_type_body(name=name, schema=schema))
    problem(response, 422, "failed to parse avro schema Order contains itself at /fields/0/type/1")


def test_schemas_evolve_as_the_compatibility_mode_allows(client, create, name):
    """Reference schemas#find-schema."""
    create(name, schema=AVRO)
    path = f"/event-types/{name}/schemas"
    assert client.post(path, json=AVRO).status_code == 200
    added = client.post(path, json=WIDER)
    assert (added.status_code, added.json()["version"]) == (201, "2.0.0")
    detail = (
        "Failed to evolve avro schema due to "
        "[{ type:READER_FIELD_MISSING_DEFAULT_VALUE, location:/fields/0, message:order_id }"
    )
    problem(client.post(path, json=NARROWER), 422, detail)
    json_schema = event_type_body()["schema"]
    problem(client.post(path, json=json_schema), 422, "avro_schema")
    assert client.post(path, json=AVRO, params={"fetch": "true"}).json()["version"] == "1.0.0"
    problem(client.post(path, json=NARROWER, params={"fetch": "true"}), 404, f"schema is not found for {name}")


def test_a_schema_can_be_checked_without_being_added(client, create, name):
    """Reference schemas#compatibility-check."""
    create(name, schema=AVRO)
    path = f"/event-types/{name}/schemas/1.0.0/compatibility-check"
    answer = client.post(path, json={"schema": NARROWER["schema"]}).json()
    assert answer.pop("error").startswith("Failed to evolve avro schema due to [{")
    assert answer == {"compatible": False, "compatibility_mode": "forward", "validated_against_version": "1.0.0"}
    assert client.post(path, json={"schema": WIDER["schema"]}).json()["compatible"] is True


def test_events_in_json_stay_readable_after_the_change_to_avro(client, create, name):
    create(name)
    assert client.post(f"/event-types/{name}/schemas", json=AVRO).json()["version"] == "2.0.0"
    assert client.get(f"/event-types/{name}").json()["json_schema"]["version"] == "1.0.0"
    assert client.post(f"/event-types/{name}/events", json=[event()]).status_code == 200
    refused = client.post(f"/event-types/{name}/events", json=[event(1)])
    assert (refused.status_code, refused.json()[0]["step"]) == (422, "validating")


def test_events_in_json_need_a_json_schema(client, create, name):
    """Reference schemas#no-json-schema."""
    create(name, schema=AVRO)
    (item,) = client.post(f"/event-types/{name}/events", json=[event()]).json()
    assert item["detail"] == f"No json_schema found for event type: {name}"
    assert client.post(f"/event-types/{name}/events", json=[]).status_code == 200


@pytest.mark.parametrize("batch", ["batch.publishing", "batch.consumption"])
def test_the_schemas_of_batches_can_be_fetched_by_libraries(client, batch):
    """Reference schemas#batch-schemas."""
    items = client.get(f"/avro-schemas/{batch}/versions").json()["items"]
    assert [item["version"] for item in items] == ["0", "1"]
    for item in items:
        assert client.get(f"/avro-schemas/{batch}/versions/{item['version']}").json() == item
        fastavro.parse_schema(item["avro_schema"])
    problem(client.get(f"/avro-schemas/{batch}/versions/9"), 404, f"Avro schema not found for: {batch}, version 9")


def test_other_schemas_are_not_found(client):
    """Reference schemas#batch-schemas."""
    problem(client.get("/avro-schemas/nope/versions"), 404, "Avro schema not found for: nope")
    problem(client.get("/avro-schemas/nope/versions/1"), 404, "Avro schema not found for: nope, version 1")
