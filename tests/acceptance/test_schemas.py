"""`/event-types/{name}/schemas`, and the validation of events by schemas.

Source: reference schemas#effective-schema, schemas#evolution, schemas#schema-objects.
"""

import json

import pytest

from tests.acceptance.conftest import event, json_schema, problem, rows
from tests.support.builders import SCHEMA, event_type_body


def wider(count):
    schema = json.loads(SCHEMA)
    schema["properties"] |= {f"p{number}": {"type": "string"} for number in range(count)}
    return {"type": "json_schema", "schema": json.dumps(schema)}


def test_a_new_version_is_added_and_returned(client, create, name):
    """Reference schemas#get-schema."""
    create(name)
    response = client.post(f"/event-types/{name}/schemas", json=wider(1))
    assert response.status_code == 201
    assert response.json()["version"] == "1.1.0"
    assert client.get(f"/event-types/{name}").json()["schema"] == response.json()
    assert client.get(f"/event-types/{name}/schemas/latest").json() == response.json()
    assert client.get(f"/event-types/{name}/schemas/1.0.0").json()["schema"] == SCHEMA


@pytest.fixture(scope="module")
def versions(server):
    """The path of the schemas of an event type that has five of them."""
    path = "/event-types/test.versions/schemas"
    with server.client() as client:
        client.post("/event-types", json=event_type_body(name="test.versions"))
        for count in (1, 2, 3, 4):
            client.post(path, json=wider(count))
    return path


@pytest.mark.parametrize(
    ("query", "minors", "before", "behind"),
    rows(
        ("defaults", "", [4, 3, 2, 1, 0], None, None),
        ("first page", "limit=2", [4, 3], None, "offset=2&limit=2"),
        ("middle", "offset=2&limit=2", [2, 1], "offset=0&limit=2", "offset=4&limit=2"),
        ("offset below limit", "offset=1&limit=2", [3, 2], "offset=0&limit=2", "offset=3&limit=2"),
        ("exact end", "offset=3&limit=2", [1, 0], "offset=1&limit=2", None),
        ("last page", "limit=2&offset=4", [0], "offset=2&limit=2", None),
        ("beyond the end", "offset=5&limit=2", [], None, None),
        ("largest page", "limit=1000", [4, 3, 2, 1, 0], None, None),
    ),
)
def test_versions_are_listed_newest_first_in_pages(client, versions, query, minors, before, behind):
    """Reference schemas#list-schemas, common#pagination, common#page-links."""
    body = client.get(f"{versions}?{query}").json()
    assert [item["version"] for item in body["items"]] == [f"1.{minor}.0" for minor in minors]
    links = {"prev": before, "next": behind}
    assert body["_links"] == {name: {"href": f"{versions}?{link}"} for name, link in links.items() if link}


@pytest.mark.parametrize(
    ("query", "detail"),
    rows(
        ("limit 0", "limit=0", "'limit' parameter sholud have value between 1 and 1000"),
        ("limit 1001", "limit=1001", "'limit' parameter sholud have value between 1 and 1000"),
        ("offset -1", "offset=-1", "'offset' parameter can't be lower than 0"),
        ("no number", "limit=abc", "limit: 'abc' is not an integer"),
    ),
)
def test_pages_have_limits(client, versions, query, detail):
    """Reference common#pagination, common#query-parameters."""
    problem(client.get(f"{versions}?{query}"), 400, detail)


def test_unknown_resources_are_not_found(client, create, name):
    """Reference schemas#get-schema, schemas#list-schemas."""
    problem(client.get("/event-types/nope/schemas"), 404)
    problem(client.get("/event-types/nope/schemas/latest"), 404)
    problem(client.post("/event-types/nope/schemas", json=wider(1)), 404)
    create(name)
    problem(
        client.get(f"/event-types/{name}/schemas/9.9.9"),
        404,
        f'EventType "{name}" has no schema with version "9.9.9"',
    )


STRING = {"type": "string"}
ORDER = {"properties": {"order_id": STRING}, "required": ["order_id"]}


@pytest.mark.parametrize(
    ("mode", "body", "detail"),
    rows(
        ("schema: required", "forward", {"type": "json_schema"}, 'Field "schema" must not be null'),
        ("type: required", "forward", {"schema": "{}"}, 'Field "type" must not be null'),
        (
            "strict JSON",
            "forward",
            {"type": "json_schema", "schema": "{,}"},
            "schema must be a valid json: ",
        ),
        (
            "nothing behind",
            "forward",
            {"type": "json_schema", "schema": "{} {}"},
            "schema must be a valid json: ",
        ),
        (
            "root type",
            "forward",
            json_schema(type=["object"]),
            '"type" of root element',
        ),
        (
            "$schema",
            "forward",
            json_schema(**{"$schema": "http://json-schema.org/draft-03/schema#"}),
            "[http://json-schema.org/draft-03/schema#]",
        ),
        (
            "unknown type",
            "forward",
            json_schema(properties={"a": {"type": "x"}}),
            "schema must be a valid json-schema: ",
        ),
        (
            "pattern",
            "forward",
            json_schema(properties={"a": {"pattern": "(?=x)"}}),
            "invalid regex pattern in the schema: ",
        ),
        (
            "reference",
            "forward",
            json_schema(properties={"a": {"$ref": "file:///etc/passwd"}}),
            ": file:///etc/passwd",
        ),
        ("metadata", "forward", json_schema(properties={"metadata": {}}), '"metadata" property is reserved'),
        (
            "keywords of compatible",
            "compatible",
            json_schema(properties={"order_id": STRING, "a": {"not": {}}}, required=["order_id"]),
            "Invalid schema: Invalid schema found in [#/properties/a]: extraneous key [not] is not permitted",
        ),
        (
            "changes that forward refuses",
            "forward",
            json_schema(properties={"order_id": {"type": "integer"}}),
            "Invalid schema: #/properties/order_id: schema types must be the same, #/required: required array changed",
        ),
        (
            "a change that compatible refuses",
            "compatible",
            json_schema(properties={"order_id": STRING, "a": STRING}, required=["order_id", "a"]),
            "Invalid schema: #/required: required array changed",
        ),
    ),
)
def test_a_bad_schema_is_rejected(client, create, name, mode, body, detail):
    """Reference schemas#schema-checks, schemas#refused-changes."""
    create(name, compatibility_mode=mode)
    problem(client.post(f"/event-types/{name}/schemas", json=body), 422, detail)
    assert client.get(f"/event-types/{name}/schemas/latest").json()["version"] == "1.0.0"


@pytest.mark.parametrize(
    ("mode", "submitted", "version"),
    rows(
        ("identical text", "forward", ORDER, "1.0.0"),
        ("only a description", "forward", ORDER | {"description": "x"}, "1.0.1"),
        ("another property", "forward", ORDER | {"properties": {"order_id": STRING, "a": STRING}}, "1.1.0"),
        (
            "another property in compatible",
            "compatible",
            ORDER | {"properties": {"order_id": STRING, "a": STRING}},
            "1.1.0",
        ),
        (
            "more required",
            "forward",
            {"properties": {"order_id": STRING, "a": STRING}, "required": ["order_id", "a"]},
            "2.0.0",
        ),
        ("none takes everything", "none", {"properties": {"order_id": {"type": "integer"}}}, "2.0.0"),
        ("none counts minor changes", "none", ORDER | {"properties": {"order_id": STRING, "a": STRING}}, "1.1.0"),
    ),
)
def test_a_change_of_the_schema_increments_the_version(client, create, name, mode, submitted, version):
    """Reference schemas#versions."""
    create(name, compatibility_mode=mode, schema=json_schema(**ORDER))
    path = f"/event-types/{name}/schemas"
    response = client.post(path, json=json_schema(**submitted))
    # reference schemas#add-schema
    assert (response.status_code, response.json()["version"]) == (200 if version == "1.0.0" else 201, version)
    assert client.get(f"{path}/latest").json() == response.json()
    assert len(client.get(path).json()["items"]) == (1 if version == "1.0.0" else 2)


VIOLATIONS = {
    "properties": {
        "order_id": STRING,
        "amount": {"type": "integer", "minimum": 10},
        "tags": {"type": "array", "maxItems": 1, "items": STRING},
        "color": {"enum": ["red", "blue"]},
        "code": {"type": "string", "pattern": "^[A-Z]+$", "minLength": 2},
        "site": {"type": "string", "format": "iso-4217"},
        "any": {"anyOf": [STRING, {"type": "null"}]},
    },
    "required": ["order_id"],
}


@pytest.mark.parametrize(
    ("members", "detail"),
    rows(
        ("missing", {"order_id": ...}, "#: required key [order_id] not found"),
        ("type", {"order_id": 1}, "#/order_id: "),
        ("integer", {"amount": 10.5}, "#/amount: expected type: Integer, found: Double"),
        ("integral literals", {"amount": 11.0}, "#/amount: expected type: Integer, found: Double"),
        ("number", {"amount": 5}, "#/amount: 5 is not greater or equal to 10"),
        ("enum", {"color": "green"}, "#/color: green is not a valid enum value"),
        ("array", {"tags": ["a", "b"]}, "#/tags: expected maximum item count: 1, found: 2"),
        ("item", {"tags": [None]}, "#/tags/0: expected type: String, found: Null"),
        ("pattern", {"code": "ab"}, "#/code: string [ab] does not match pattern ^[A-Z]+$"),
        ("length", {"code": "A"}, "#/code: expected minLength: 2, actual: 1"),
        ("format", {"site": "euro"}, "#/site: must be a valid iso-4217 currency code"),
        ("combined", {"any": 1}, "#/any: no subschema matched out of the total 2 subschemas\n#/any: expected"),
        ("several", {"order_id": 1, "amount": 5}, "#: 2 schema violations found\n"),
        ("metadata: eid", {"metadata": {"eid": "x"}}, "#/metadata/eid: string [x] does not match pattern "),
        (
            "metadata: event_type",
            {"metadata": {"event_type": "x"}},
            "#/metadata/event_type: ",
        ),
        (
            "metadata: span_ctx",
            {"metadata": {"span_ctx": {"k": 1}}},
            "#/metadata/span_ctx/k: ",
        ),
        *(
            (
                f"4 metadata: {member}",
                {"metadata": {member: "x"}},
                f"#/metadata: extraneous key [{member}] is not permitted",
            )
            for member in ("received_at", "version", "published_by", "partition_compaction_key")
        ),
    ),
)
def test_validation_errors_have_the_texts_of_the_contract(client, strict, members, detail):
    """Reference schemas#violation-texts."""
    sent = {key: value for key, value in event(**members).items() if value is not ...}
    response = client.post(f"/event-types/{strict}/events", json=[sent])
    assert response.status_code == 422, response.text
    assert response.json()[0]["detail"].startswith(detail)


@pytest.fixture(scope="module")
def strict(server):
    """An event type whose schema has a rule of each kind."""
    with server.client() as client:
        client.post("/event-types", json=event_type_body(name="test.strict", schema=json_schema(**VIOLATIONS)))
    return "test.strict"


BUSINESS = {"order_id": "1", "more": 1, "metadata": True}
DATA = {"data_type": "x", "data_op": "C", "data": {"order_id": "1"}, "metadata": True}


@pytest.mark.parametrize(
    ("category", "mode", "schema", "sent", "detail"),
    rows(
        ("undefined: enforced", "undefined", "forward", ORDER, {}, "#: required key [order_id] not found"),
        ("undefined: as it is", "undefined", "forward", ORDER, {"order_id": "1", "more": 1}, None),
        ("undefined: {} in compatible", "undefined", "compatible", {}, {"a": 1}, "#: extraneous key [a] is not"),
        ("undefined: {} in compatible takes {}", "undefined", "compatible", {}, {}, None),
        ("{} in forward takes all", "undefined", "forward", {}, {"a": 1}, None),
        ("none is closed", "undefined", "none", ORDER, {"order_id": "1", "more": 1}, "#: extraneous key [more]"),
        (
            "none, opened",
            "undefined",
            "none",
            ORDER | {"additionalProperties": True},
            {"order_id": "1", "more": 1},
            None,
        ),
        ("business", "business", "forward", ORDER, BUSINESS, None),
        (
            "business: metadata",
            "business",
            "forward",
            ORDER,
            {"order_id": "1"},
            "#: required key [metadata] not found",
        ),
        (
            "business: compatible",
            "business",
            "compatible",
            ORDER,
            BUSINESS,
            "#: extraneous key [more] is not permitted",
        ),
        ("data", "data", "forward", ORDER, DATA, None),
        (
            "data: members",
            "data",
            "forward",
            ORDER,
            {"data": {"order_id": "1"}},
            (
                "#: 3 schema violations found\n#: required key [metadata] not found\n"
                "#: required key [data_op] not found\n"
                "#: required key [data_type] not found"
            ),
        ),
        ("data: closed", "data", "forward", ORDER, DATA | {"more": 1}, "#: extraneous key [more] is not permitted"),
        (
            "data: data_op",
            "data",
            "forward",
            ORDER,
            DATA | {"data_op": "X"},
            "#/data_op: X is not a valid enum value",
        ),
        (
            "data: definitions",
            "data",
            "forward",
            {"definitions": {"o": ORDER}, "properties": {"o": {"$ref": "#/definitions/o"}}},
            DATA | {"data": {"o": {}}},
            "#/data/o: required key [order_id] not found",
        ),
    ),
)
def test_events_are_validated_against_the_effective_schema(client, name, category, mode, schema, sent, detail):
    """Reference schemas#effective-schema-steps, event-types#categories."""
    strategies = [] if category == "undefined" else ["metadata_enrichment"]
    changes = {"category": category, "compatibility_mode": mode, "enrichment_strategies": strategies}
    body = event_type_body(name=name, schema=json_schema(**schema), **changes)
    assert client.post("/event-types", json=body).status_code == 201
    sent = sent | ({"metadata": event()["metadata"]} if "metadata" in sent else {})
    response = client.post(f"/event-types/{name}/events", json=[sent])
    assert response.status_code == (422 if detail else 200), response.text
    if detail:
        assert response.json()[0]["detail"].startswith(detail)


def test_events_are_validated_against_the_new_version_at_once(client, create, name):
    create(name)
    schema = json.loads(SCHEMA)
    schema["properties"]["amount"] = {"type": "integer"}
    client.post(f"/event-types/{name}/schemas", json={"type": "json_schema", "schema": json.dumps(schema)})
    for _ in range(10):
        assert client.post(f"/event-types/{name}/events", json=[event(amount="x")]).status_code == 422
        assert client.post(f"/event-types/{name}/events", json=[event(amount=1)]).status_code == 200


def test_a_schema_is_found_by_equivalence_and_the_newest_match_is_returned(client, create, name):
    """Reference schemas#find-schema."""
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
    """Reference schemas#compatibility-check."""
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
