"""`POST /event-types`: reference event-types#fields, event-types#cleanup-policy, event-types#annotations-and-labels.

Source: reference event-types#definition, event-types#creating.
"""

import concurrent.futures

import pytest

from tests.acceptance.conftest import ATTRIBUTE, AUTHORIZATION, FULL_STATISTIC, SELECTOR, json_schema, problem, rows
from tests.support.builders import SCHEMA, event_type_body


DATA_LAKE = "datalake.zalando.org"


def test_a_created_event_type_is_answered_in_full_and_can_be_read_at_once(client, name):
    """Reference event-types#create-event-type, event-types#get-event-type, event-types#warning-header."""
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


def test_members_are_in_the_documented_order(client, create, name):
    """Reference event-types#response-members."""
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
    """Reference event-types#create-checks."""
    create(name)
    problem(client.post("/event-types", json=event_type_body(name=name)), 409, f"EventType {name} already exists.")


def test_of_many_concurrent_creations_one_succeeds(server, name):
    def attempt(_):
        with server.client() as client:
            return client.post("/event-types", json=event_type_body(name=name)).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(attempt, range(8))) == [201] + [409] * 7


@pytest.mark.parametrize(
    ("field", "default"),
    rows(
        ("enrichment_strategies", "enrichment_strategies", []),
        ("partition_strategy", "partition_strategy", "random"),
        ("partition_key_fields", "partition_key_fields", []),
        ("compatibility_mode", "compatibility_mode", "forward"),
        ("default_statistic", "default_statistic", None),
        ("options.retention_time", "options", {"retention_time": 172_800_000}),
        ("cleanup_policy", "cleanup_policy", "delete"),
        ("authorization", "authorization", None),
        ("audience", "audience", ...),
        ("annotations", "annotations", {}),
        ("labels", "labels", {}),
        ("ordering_key_fields", "ordering_key_fields", []),
        ("ordering_instance_ids", "ordering_instance_ids", []),
        ("event_owner_selector", "event_owner_selector", ...),
    ),
)
@pytest.mark.parametrize("sent", [{}, None], ids=["absent", "null"])
def test_omitted_fields_have_their_defaults(client, name, field, default, sent):
    """Reference event-types#fields."""
    body = event_type_body(name=name, category="undefined", enrichment_strategies=[])
    if sent is None and field != "partition_strategy":
        body[field] = None
    elif field == "enrichment_strategies":
        del body[field]
    created = client.post("/event-types", json=body).json()
    assert created.get(field, ...) == default


@pytest.mark.parametrize(
    ("changes", "detail"),
    rows(
        ("name: required", {"name": None}, 'Field "name" must not be null'),
        ("name: syntax", {"name": "1"}, 'Field "name" format not allowed'),
        ("name: empty", {"name": ""}, 'Field "name"'),
        ("name: length", {"name": "a" * 256}, 'Field "name"'),
        ("owning_application: required", {"owning_application": None}, 'Field "owning_application" must not be'),
        ("category: required", {"category": None}, 'Field "category" must not be null'),
        ("schema: required", {"schema": None}, 'Field "schema" must not be null'),
        ("schema.schema: required", {"schema": {"type": "json_schema"}}, 'Field "schema.schema" must not be null'),
        ("schema.type: required", {"schema": {"schema": "{}"}}, 'Field "schema.type" must not be null'),
        ("schema.type: unknown", {"schema": {"type": "xml", "schema": "{}"}}, 'Field "schema.type"'),
        ("enrichment_strategies: unknown", {"enrichment_strategies": ["x"]}, "enrichment strategy"),
        (
            "default_statistic: all members",
            {"default_statistic": {"message_size": 1}},
            'Field "default_statistic.messages_per_minute" must not be null',
        ),
        (
            "default_statistic: messages_per_minute",
            {"default_statistic": FULL_STATISTIC | {"messages_per_minute": -1}},
            'Field "default_statistic.messages_per_minute"',
        ),
        (
            "default_statistic: message_size",
            {"default_statistic": FULL_STATISTIC | {"message_size": 0}},
            'Field "default_statistic.message_size"',
        ),
        (
            "default_statistic: read_parallelism",
            {"default_statistic": FULL_STATISTIC | {"read_parallelism": 0}},
            'Field "default_statistic.read_parallelism"',
        ),
        (
            "default_statistic: write_parallelism",
            {"default_statistic": FULL_STATISTIC | {"write_parallelism": 0}},
            'Field "default_statistic.write_parallelism"',
        ),
        (
            "options.retention_time: least",
            {"options": {"retention_time": 10_799_999}},
            'Field "options.retention_time" can not be less than 10800000',
        ),
        (
            "options.retention_time: most",
            {"options": {"retention_time": 345_600_001}},
            'Field "options.retention_time" can not be more than 345600000',
        ),
        (
            "authorization: all lists",
            {"authorization": {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE]}},
            'Field "authorization.writers" must not be null',
        ),
        (
            "authorization: empty list",
            {"authorization": AUTHORIZATION | {"readers": []}},
            'Field "authorization.readers" must contain at least one attribute',
        ),
        (
            "authorization: attribute",
            {"authorization": AUTHORIZATION | {"readers": [{"value": "x"}]}},
            'Field "authorization.readers[0].data_type" must not be null',
        ),
        (
            "authorization: duplicates",
            {"authorization": AUTHORIZATION | {"admins": [ATTRIBUTE, ATTRIBUTE]}},
            "duplicated attribute(s): user:alice",
        ),
        (
            "ordering_key_fields: paths",
            {"ordering_key_fields": ["order_id", "a", "b.c"]},
            "ordering_key_fields [a, b.c] absent in schema",
        ),
        (
            "ordering_instance_ids: paths",
            {"ordering_key_fields": ["order_id"], "ordering_instance_ids": ["a"]},
            "ordering_instance_ids [a] absent in schema",
        ),
        ("ordering_instance_ids: need keys", {"ordering_instance_ids": ["order_id"]}, "`ordering_instance_ids` field"),
        (
            "event_owner_selector: all members",
            {"event_owner_selector": {"type": "path"}},
            'Field "event_owner_selector.name" must not be null',
        ),
        (
            "event_owner_selector: name",
            {"event_owner_selector": SELECTOR | {"name": ""}},
            'Field "event_owner_selector.name" the length of the name must be >= 1',
        ),
        (
            "event_owner_selector: path",
            {"event_owner_selector": SELECTOR | {"value": "x.y"}},
            "event_owner_selector.value [x.y] absent in schema",
        ),
        ("undefined: no enrichment", {"category": "undefined"}, "enrichment strategy for undefined"),
        ("business: enrichment", {"enrichment_strategies": []}, "must define metadata enrichment strategy"),
        ("duplicate strategies", {"enrichment_strategies": ["metadata_enrichment"] * 2}, "enrichment strategies"),
        ("partition_strategy: null", {"partition_strategy": None}, "partition strategy must not be null"),
        ("partition_strategy: unknown", {"partition_strategy": "foo"}, "partition strategy does not exist: foo"),
        ("hash: key fields", {"partition_strategy": "hash"}, "partition_key_fields field"),
        (
            "hash: key fields in the schema",
            {"partition_strategy": "hash", "partition_key_fields": ["nope"]},
            "partition_key_fields [nope] absent in schema",
        ),
        (
            "user_defined: category",
            {"category": "undefined", "enrichment_strategies": [], "partition_strategy": "user_defined"},
            "'user_defined' partition strategy",
        ),
        (
            "compact: category",
            {"category": "undefined", "enrichment_strategies": [], "cleanup_policy": "compact"},
            "cleanup_policy",
        ),
        ("key: empty", {"annotations": {"": "x"}}, 'Field "annotations[]"'),
        (
            "key: prefix",
            {"labels": {"A.b/c": "x"}},
            'Field "labels[A.b/c]" Key name should be an optional lowercase domain name with path',
        ),
        (
            "key: name",
            {"labels": {"-c": "x"}},
            'Field "labels[-c]" Key name should start and end with a letter or a digit',
        ),
        ("key: prefix length", {"labels": {"a" * 254 + "/b": "x"}}, "Key prefix"),
        ("key: name length", {"labels": {"a" * 64: "x"}}, "Key name"),
        ("annotation: bytes", {"annotations": {"a": "ä" * 501}}, "size must be between 0 and 1000"),
        ("label: length", {"labels": {"a": "x" * 64}}, 'Field "labels[a]" size must be between 0 and 63'),
        ("label: characters", {"labels": {"a": "x y"}}, 'Field "labels[a]"'),
        (
            "data lake",
            {"annotations": {f"{DATA_LAKE}/materialize-events": "yes"}},
            f"Field \"annotations[{DATA_LAKE}/materialize-events]\" must be 'on' or 'off'",
        ),
        ("schema: JSON", {"schema": {"type": "json_schema", "schema": "{"}}, "schema must be a valid json: "),
        ("schema: root", {"schema": json_schema(type="array")}, '"type" of root element in schema can only be'),
        ("schema: reserved", {"schema": json_schema(properties={"metadata": {}})}, '"metadata" property is reserved'),
        (
            "schema: references",
            {"schema": json_schema(**{"$ref": "http://127.0.0.1/x"})},
            "external url reference is not supported: http://127.0.0.1/x",
        ),
    ),
)
def test_a_violated_rule_is_named(client, name, changes, detail):
    """A definition against each rule, with the text of its rejection.

    Source: reference event-types#name, event-types#default-statistic, event-types#ordering-fields,
    event-types#owner-selector, authorization#required-lists.
    """
    body = event_type_body(**({"name": name} | changes))
    found = problem(client.post("/event-types", json=body), 422, detail)
    if detail.startswith("Field"):
        assert found["type"] == "http://httpstatus.es/422"
        assert found["title"] == "Unprocessable Entity"
    if changes.get("name") is None:
        problem(client.get(f"/event-types/{name}"), 404)


def test_all_invalid_fields_are_named_together(client):
    """Reference common#field-violations."""
    found = problem(client.post("/event-types", json={"labels": {"": "x"}}), 422)
    assert sorted(found["detail"].splitlines()) == [
        'Field "category" must not be null',
        'Field "labels[]" Key cannot be empty',
        'Field "labels[]" Key name should start and end with a letter or a digit',
        'Field "name" must not be null',
        'Field "owning_application" must not be null',
        'Field "schema" must not be null',
    ]


def test_the_first_check_that_fails_determines_the_answer(client, switch, create, name):
    """Reference event-types#create-checks: a submission that violates every rule, corrected rule by rule."""
    create(name)
    for feature in (
        "disable_event_type_creation",
        "disable_db_write_operations",
        "force_event_type_authz",
        "validate_event_type_owning_application",
    ):
        switch(feature)
    body = event_type_body(
        name=name,
        owning_application="nobody",
        category="x",
        options={"retention_time": 1},
        annotations={f"{DATA_LAKE}/materialize-events": "yes"},
        labels={"": "x"},
        cleanup_policy="compact",
        partition_strategy="user_defined",
        schema=json_schema(type="array"),
    )
    for number, repair, status, detail in (
        (1, {}, 400, "Illegal enum value: 'x'. Possible values: [undefined, data, business]"),
        (2, {"category": "undefined"}, 501, "Event Type creation is disabled"),
        (3, "disable_event_type_creation", 422, 'Field "labels[]" Key cannot be empty'),
        (4, {"labels": {}}, 503, "Database is currently in read-only mode"),
        (5, "disable_db_write_operations", 422, 'Field "options.retention_time"'),
        (6, {"options": None}, 422, "materialize-events"),
        (7, {"annotations": {}}, 422, '"type" of root element'),
        (8, {"schema": json_schema(type="object")}, 422, "cleanup_policy 'compact'"),
        (9, {"cleanup_policy": "delete"}, 422, "must not define enrichment strategy"),
        (10, {"enrichment_strategies": []}, 422, "'user_defined' partition strategy"),
        (11, {"partition_strategy": "random"}, 422, "Authorization section is mandatory"),
        (12, {"authorization": AUTHORIZATION}, 422, "Owning application is not valid: nobody"),
        (13, {"owning_application": "shop"}, 409, f"EventType {name} already exists."),
    ):
        if isinstance(repair, str):
            switch(repair, enabled=False)
        else:
            body |= repair
        response = client.post("/event-types", json=body)
        assert (number, response.status_code) == (number, status), response.text
        assert detail in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "detail"),
    rows(
        ("no JSON", b"{", "not valid JSON"),
        ("no object", b"[]", "must be object"),
        ("JSON type", b'{"name":1}', "name must be string or null"),
        ("JSON type of a map", b'{"name":"a","annotations":[]}', "annotations must be object or null"),
        ("no UTF-8", b"\xff", "not valid JSON"),
        ("empty", b"", "not valid JSON"),
        ("category: unknown", b'{"category":"x"}', "'x'. Possible values: [undefined, data, business]"),
        ("compatibility_mode: unknown", b'{"compatibility_mode":"x"}', "[compatible, forward, none]"),
        ("cleanup_policy: unknown", b'{"cleanup_policy":"x"}', "[delete, compact, compact_and_delete]"),
        (
            "audience: unknown",
            b'{"audience":"x"}',
            "[component-internal, business-unit-internal, company-internal, external-partner, external-public]",
        ),
        ("event_owner_selector.type: unknown", b'{"event_owner_selector":{"type":"x"}}', "[path, static]"),
    ),
)
def test_an_unparsable_body_is_rejected(client, body, detail):
    """Reference common#enum-literals, common#json-bodies, event-types#audience."""
    problem(client.post("/event-types", content=body), 400, detail)


def test_creating_a_compacted_event_type_returns_a_warning(client, name):
    """Reference event-types#warning-header."""
    response = client.post("/event-types", json=event_type_body(name=name, cleanup_policy="compact"))
    assert response.headers["warning"] == '299 nakadi "Data access warning. Compaction warning"'
