"""`/event-types/{name}/schemas`: registry contract 5.6."""

import json

import pytest

from tests.acceptance.conftest import event, problem
from tests.support.builders import SCHEMA


def wider(count):
    schema = json.loads(SCHEMA)
    schema["properties"] |= {f"p{number}": {"type": "string"} for number in range(count)}
    return {"type": "json_schema", "schema": json.dumps(schema)}


def test_a_new_version_is_added_and_answered(client, create, name):
    create(name)
    response = client.post(f"/event-types/{name}/schemas", json=wider(1))
    assert response.status_code == 201
    assert response.json()["version"] == "1.1.0"
    assert client.get(f"/event-types/{name}").json()["schema"] == response.json()
    assert client.get(f"/event-types/{name}/schemas/latest").json() == response.json()
    assert client.get(f"/event-types/{name}/schemas/1.0.0").json()["schema"] == SCHEMA


def test_the_same_schema_adds_nothing(client, create, name):
    create(name)
    response = client.post(f"/event-types/{name}/schemas", json={"type": "json_schema", "schema": SCHEMA})
    assert (response.status_code, response.json()["version"]) == (200, "1.0.0")
    assert len(client.get(f"/event-types/{name}/schemas").json()["items"]) == 1


def test_versions_are_listed_newest_first_in_pages(client, create, name):
    create(name)
    for count in (1, 2):
        client.post(f"/event-types/{name}/schemas", json=wider(count))
    path = f"/event-types/{name}/schemas"
    body = client.get(path).json()
    assert [item["version"] for item in body["items"]] == ["1.2.0", "1.1.0", "1.0.0"]
    assert body["_links"] == {}
    body = client.get(path, params={"limit": 1, "offset": 1}).json()
    assert [item["version"] for item in body["items"]] == ["1.1.0"]
    assert body["_links"] == {
        "prev": {"href": f"{path}?offset=0&limit=1"},
        "next": {"href": f"{path}?offset=2&limit=1"},
    }
    assert client.get(path, params={"offset": 9}).json() == {"items": [], "_links": {}}


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "limit=abc"])
def test_pages_have_limits(client, create, name, query):
    create(name)
    problem(client.get(f"/event-types/{name}/schemas?{query}"), 400)


def test_what_does_not_exist_is_not_found(client, create, name):
    problem(client.get("/event-types/nope/schemas"), 404)
    problem(client.get("/event-types/nope/schemas/latest"), 404)
    problem(client.post("/event-types/nope/schemas", json=wider(1)), 404)
    create(name)
    problem(
        client.get(f"/event-types/{name}/schemas/9.9.9"),
        404,
        f'EventType "{name}" has no schema with version "9.9.9"',
    )


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"type": "json_schema"}, 'Field "schema" must not be null'),
        ({"schema": "{}"}, 'Field "type" must not be null'),
        ({"type": "json_schema", "schema": "{,}"}, "schema must be a valid json"),
        ({"type": "json_schema", "schema": '{"properties":{"order_id":{"type":"integer"}}}'}, "Invalid schema"),
    ],
)
def test_a_bad_schema_is_refused(client, create, name, body, detail):
    create(name)
    problem(client.post(f"/event-types/{name}/schemas", json=body), 422, detail)


def test_events_are_validated_against_the_new_version_at_once(client, create, name):
    create(name)
    schema = json.loads(SCHEMA)
    schema["properties"]["amount"] = {"type": "integer"}
    client.post(f"/event-types/{name}/schemas", json={"type": "json_schema", "schema": json.dumps(schema)})
    for _ in range(10):
        assert client.post(f"/event-types/{name}/events", json=[event(amount="x")]).status_code == 422
        assert client.post(f"/event-types/{name}/events", json=[event(amount=1)]).status_code == 200


def test_a_schema_is_fetched_by_its_meaning_and_the_newest_match_wins(client, create, name):
    create(name)
    path = f"/event-types/{name}/schemas"
    client.post(path, json=wider(1))
    reordered = json.dumps(dict(reversed(json.loads(SCHEMA).items())), indent=1)
    found = client.post(f"{path}?fetch=true", json={"type": "json_schema", "schema": reordered})
    assert (found.status_code, found.json()["version"]) == (200, "1.0.0")
    assert len(client.get(path).json()["items"]) == 2
    problem(client.post(f"{path}?fetch=true", json=wider(7)), 404, f"schema is not found for {name}")
    problem(client.post(f"{path}?fetch=true", json={"type": "json_schema", "schema": "{"}), 404)
    problem(client.post("/event-types/nope/schemas?fetch=true", json=wider(1)), 404)


def test_compatibility_is_checked_against_any_version_and_changes_nothing(client, create, name):
    create(name)
    path = f"/event-types/{name}/schemas"
    client.post(path, json=wider(1))
    for version, schema, compatible in (
        ("1.0.0", wider(1)["schema"], True),
        ("1.1.0", SCHEMA, False),
        ("latest", wider(2)["schema"], True),
        ("latest", "{", False),
    ):
        answer = client.post(f"{path}/{version}/compatibility-check", json={"schema": schema}).json()
        assert (answer["compatible"], answer["compatibility_mode"]) == (compatible, "forward")
        assert ("error" in answer) is not compatible
        assert answer["validated_against_version"] == version.replace("latest", "1.1.0")
    assert len(client.get(path).json()["items"]) == 2
    problem(client.post(f"{path}/9.9.9/compatibility-check", json={"schema": SCHEMA}), 404)
    problem(client.post(f"{path}/1.0.0/compatibility-check", json={}), 422, 'Field "schema" must not be null')
