"""`/event-types`: registry contract 3."""

import concurrent.futures

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.builders import SCHEMA, event_type_body


ATTRIBUTE = {"data_type": "user", "value": "alice"}
AUTHORIZATION = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE], "writers": [ATTRIBUTE]}


def test_a_created_event_type_is_answered_in_full_and_can_be_read_at_once(client, name):
    response = client.post("/event-types", json=event_type_body(name=name))
    assert response.status_code == 201
    created = response.json()
    assert created["name"] == name
    assert created["schema"]["version"] == "1.0.0"
    assert created["schema"]["schema"] == SCHEMA
    assert created["options"] == {"retention_time": 172800000}
    assert created["authorization"] is None
    assert created["default_statistic"] is None
    assert created["cleanup_policy"] == "delete"
    assert "audience" not in created
    assert created["created_at"] == created["updated_at"]
    assert response.headers["warning"] == '299 nakadi "Data access warning"'
    for _ in range(10):
        assert client.get(f"/event-types/{name}").json() == created


def test_members_come_in_the_order_that_clients_know(client, create, name):
    create(name, audience="company-internal")
    assert list(client.get(f"/event-types/{name}").json()) == [
        "name",
        "owning_application",
        "category",
        "enrichment_strategies",
        "partition_strategy",
        "partition_key_fields",
        "cleanup_policy",
        "ordering_key_fields",
        "ordering_instance_ids",
        "schema",
        "default_statistic",
        "options",
        "authorization",
        "annotations",
        "labels",
        "compatibility_mode",
        "audience",
        "updated_at",
        "created_at",
    ]


def test_the_same_name_again_is_a_conflict(client, create, name):
    create(name)
    problem(client.post("/event-types", json=event_type_body(name=name)), 409, f"EventType {name} already exists.")


def test_of_many_concurrent_creations_one_wins(server, name):
    def attempt(_):
        with server.client() as client:
            return client.post("/event-types", json=event_type_body(name=name)).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [201] + [409] * 7


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"name": "1"}, 'Field "name" format not allowed'),
        ({"category": None}, 'Field "category" must not be null'),
        ({"schema": None}, 'Field "schema" must not be null'),
        ({"schema": {"type": "json_schema"}}, 'Field "schema.schema" must not be null'),
        ({"schema": {"type": "xml", "schema": "{}"}}, 'Field "schema.type"'),
        ({"schema": {"type": "json_schema", "schema": "{"}}, "schema must be a valid json"),
        ({"schema": {"type": "json_schema", "schema": '{"type":"array"}'}}, '"type" of root element in schema'),
        (
            {"schema": {"type": "json_schema", "schema": '{"properties":{"metadata":{}}}'}},
            '"metadata" property is reserved',
        ),
        (
            {"schema": {"type": "json_schema", "schema": '{"$ref":"http://127.0.0.1/x"}'}},
            "external url reference is not supported",
        ),
        ({"enrichment_strategies": []}, "must define metadata enrichment strategy"),
        ({"enrichment_strategies": ["x"]}, "enrichment strategy"),
        ({"partition_strategy": "x"}, "partition strategy does not exist: x"),
        ({"partition_strategy": "hash"}, "partition_key_fields field should be set"),
        ({"partition_strategy": "hash", "partition_key_fields": ["nope"]}, "nope"),
        ({"options": {"retention_time": 1}}, "can not be less than 10800000"),
        ({"default_statistic": {"message_size": 1}}, 'Field "default_statistic.messages_per_minute" must not be null'),
        (
            {"authorization": AUTHORIZATION | {"readers": []}},
            'Field "authorization.readers" must contain at least one attribute',
        ),
        (
            {"authorization": AUTHORIZATION | {"readers": [{"value": "x"}]}},
            'Field "authorization.readers[0].data_type" must not be null',
        ),
        ({"ordering_key_fields": ["nope"]}, "ordering_key_fields [nope] absent in schema"),
        ({"annotations": {"": "x"}}, 'Field "annotations[]" Key cannot be empty'),
    ],
)
def test_a_broken_rule_is_named(client, name, changes, detail):
    problem(client.post("/event-types", json=event_type_body(**({"name": name} | changes))), 422, detail)
    if changes.get("name") is None:
        problem(client.get(f"/event-types/{name}"), 404)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "must be object"),
        (b'{"name":1}', "name must be string or null"),
        (b'{"name":"a","category":"x"}', "Illegal enum value: 'x'. Possible values: [undefined, data, business]"),
        (b'{"name":"a","annotations":[]}', "annotations must be object or null"),
        (b"\xff", "not valid JSON"),
        (b"", "not valid JSON"),
    ],
)
def test_a_body_that_can_not_be_read_is_refused(client, body, detail):
    problem(client.post("/event-types", content=body), 400, detail)


def test_literals_are_taken_in_any_case(client, name):
    body = event_type_body(name=name, category="BUSINESS", compatibility_mode="None", audience="Company-Internal")
    created = client.post("/event-types", json=body).json()
    assert (created["category"], created["compatibility_mode"]) == ("business", "none")
    assert created["audience"] == "company-internal"


def test_an_unknown_event_type_is_not_found(client):
    problem(client.get("/event-types/nope"), 404, 'EventType "nope" does not exist.')
    problem(client.put("/event-types/nope", json=event_type_body(name="nope")), 404)
    problem(client.delete("/event-types/nope"), 404)


def test_putting_back_what_was_got_changes_nothing(client, create, name):
    create(name, authorization=AUTHORIZATION, annotations={"a": "b"}, **partitions(2))
    before = client.get(f"/event-types/{name}").json()
    response = client.put(f"/event-types/{name}", json=before)
    assert (response.status_code, response.content) == (200, b"")
    assert client.get(f"/event-types/{name}").json() == before


def test_a_change_is_seen_at_once(client, create, name):
    create(name)
    body = event_type_body(name=name, owning_application="other", labels={"team": "x"})
    assert client.put(f"/event-types/{name}", json=body).status_code == 200
    after = client.get(f"/event-types/{name}").json()
    assert (after["owning_application"], after["labels"]) == ("other", {"team": "x"})
    assert after["updated_at"] > after["created_at"]


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"name": "other"}, "path does not match resource name"),
        ({"category": "data"}, "Category change is allowed only"),
        ({"cleanup_policy": "compact"}, "Invalid cleanup_policy change: DELETE cannot be changed to COMPACT"),
        ({"schema": {"type": "json_schema", "schema": '{"properties":{}}'}}, "Invalid schema:"),
    ],
)
def test_a_change_against_the_rules_is_named_and_changes_nothing(client, create, name, changes, detail):
    create(name)
    before = client.get(f"/event-types/{name}").json()
    problem(client.put(f"/event-types/{name}", json=event_type_body(**({"name": name} | changes))), 422, detail)
    assert client.get(f"/event-types/{name}").json() == before


def test_a_change_with_a_wider_schema_adds_a_version(client, create, name):
    create(name)
    wider = SCHEMA.replace('"order_id":{"type":"string"}', '"order_id":{"type":"string"},"note":{"type":"string"}')
    body = event_type_body(name=name, schema={"type": "json_schema", "schema": wider})
    assert client.put(f"/event-types/{name}", json=body).status_code == 200
    assert client.get(f"/event-types/{name}").json()["schema"]["version"] == "1.1.0"


def test_the_list_is_sorted_and_filtered(client, create, name):
    create(f"{name}.b", owning_application=name)
    create(f"{name}.a", owning_application=name, authorization=AUTHORIZATION)
    found = client.get("/event-types", params={"owning_application": name}).json()
    assert [each["name"] for each in found] == [f"{name}.a", f"{name}.b"]
    found = client.get("/event-types", params={"owning_application": name, "writer": "user:alice"}).json()
    assert [each["name"] for each in found] == [f"{name}.a"]
    names = [each["name"] for each in client.get("/event-types").json()]
    assert names == sorted(names)
    problem(client.get("/event-types", params={"writer": "alice"}), 400, "Should be data_type:value")


def test_a_deleted_event_type_is_gone_and_its_name_free(client, create, name):
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    response = client.delete(f"/event-types/{name}")
    assert (response.status_code, response.content) == (200, b"")
    problem(client.get(f"/event-types/{name}"), 404)
    problem(client.post(f"/event-types/{name}/events", json=[event()]), 404)
    create(name)
    offsets = client.get(f"/event-types/{name}/partitions").json()[0]
    assert offsets["newest_available_offset"] == "001-0001--1"


def test_an_event_type_with_subscriptions_stays(client, create, subscribe, name):
    create(name)
    subscription_id = subscribe(name)
    problem(client.delete(f"/event-types/{name}"), 409, f"Can't remove event type {name}, as it has subscriptions")
    client.delete(f"/subscriptions/{subscription_id}")
    assert client.delete(f"/event-types/{name}").status_code == 200


def test_subscriptions_of_the_archiver_go_with_the_event_type(client, create, name):
    create(name)
    body = {"owning_application": "nakadi_archiver", "consumer_group": "nakadi_to_s3", "event_types": [name]}
    subscription_id = client.post("/subscriptions", json=body).json()["id"]
    assert client.delete(f"/event-types/{name}").status_code == 200
    problem(client.get(f"/subscriptions/{subscription_id}"), 404)


def test_the_strategies_are_listed(client):
    assert client.get("/registry/enrichment-strategies").json() == ["metadata_enrichment"]
    assert client.get("/registry/partition-strategies").json() == ["hash", "user_defined", "random"]


def test_an_event_type_that_the_client_has_already_is_not_sent_again(client, create, name):
    create(name)
    tag = client.get(f"/event-types/{name}").headers["etag"]
    response = client.get(f"/event-types/{name}", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")
    assert client.get(f"/event-types/{name}", headers={"If-None-Match": '"other"'}).status_code == 200


def test_a_change_that_would_undo_another_one_is_refused(client, create, name):
    create(name)
    tag = client.get(f"/event-types/{name}").headers["etag"]
    first, second = (event_type_body(name=name, owning_application=app) for app in ("first", "second"))
    answer = client.put(f"/event-types/{name}", json=first, headers={"If-Match": tag})
    assert answer.status_code == 200
    problem(client.put(f"/event-types/{name}", json=second, headers={"If-Match": tag}), 412, "has changed since")
    assert client.get(f"/event-types/{name}").json()["owning_application"] == "first"
    assert (
        client.put(f"/event-types/{name}", json=second, headers={"If-Match": answer.headers["etag"]}).status_code == 200
    )
    assert client.put(f"/event-types/{name}", json=first, headers={"If-Match": "*"}).status_code == 200
