"""`PUT /event-types/{name}`: reference event-types#fields, event-types#update-checks.

Source: reference event-types#changing.
"""

import pytest

from tests.acceptance.conftest import AUTHORIZATION, FULL_STATISTIC, SELECTOR, json_schema, partitions, problem, rows
from tests.support.builders import SCHEMA, event_type_body


@pytest.mark.parametrize(
    "members",
    rows(
        ("nothing stated", {}),
        ("key fields beside random", {"partition_key_fields": []}),
        (
            "everything stated",
            {
                "authorization": AUTHORIZATION,
                "annotations": {"a": "b"},
                "labels": {"team": ""},
                "audience": "component-internal",
                "compatibility_mode": "compatible",
                "cleanup_policy": "compact_and_delete",
                "ordering_key_fields": ["order_id"],
                "ordering_instance_ids": ["metadata.eid"],
                "event_owner_selector": SELECTOR,
                "options": {"retention_time": 20_000_000},
                "partition_strategy": "hash",
                "partition_key_fields": ["order_id"],
                **partitions(2),
            },
        ),
    ),
)
def test_putting_the_unchanged_event_type_changes_nothing(client, create, name, members):
    """Reference event-types#update-event-type."""
    create(name, **members)
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
    ("before", "changes", "after"),
    rows(
        ("owning_application", {}, {"owning_application": "other"}, {"owning_application": "other"}),
        (
            "partition_key_fields",
            {"partition_strategy": "hash", "partition_key_fields": ["order_id"]},
            {"partition_strategy": "hash", "partition_key_fields": ["order_id", "metadata.eid"]},
            {"partition_key_fields": ["order_id", "metadata.eid"]},
        ),
        (
            "partition_strategy: from random",
            {},
            {"partition_strategy": "hash", "partition_key_fields": ["order_id"]},
            {"partition_strategy": "hash"},
        ),
        (
            "partition_strategy: by an administrator",
            {"partition_strategy": "hash", "partition_key_fields": ["order_id"]},
            {"partition_strategy": "random"},
            {"partition_strategy": "random"},
        ),
        (
            "default_statistic: absent keeps",
            {"default_statistic": FULL_STATISTIC},
            {},
            {"default_statistic": FULL_STATISTIC},
        ),
        (
            "default_statistic: the expected load",
            {"default_statistic": FULL_STATISTIC},
            {"default_statistic": FULL_STATISTIC | {"message_size": 7}},
            {"default_statistic": FULL_STATISTIC | {"message_size": 7}},
        ),
        (
            "options.retention_time: absent keeps",
            {"options": {"retention_time": 20_000_000}},
            {},
            {"options": {"retention_time": 20_000_000}},
        ),
        (
            "options.retention_time: null keeps",
            {"options": {"retention_time": 20_000_000}},
            {"options": {"retention_time": None}},
            {"options": {"retention_time": 20_000_000}},
        ),
        (
            "options.retention_time: no limits for administrators",
            {},
            {"options": {"retention_time": 345_600_001}},
            {"options": {"retention_time": 345_600_001}},
        ),
        (
            "delete to compact_and_delete",
            {},
            {"cleanup_policy": "compact_and_delete"},
            {"cleanup_policy": "compact_and_delete"},
        ),
        ("authorization: added later", {}, {"authorization": AUTHORIZATION}, {"authorization": AUTHORIZATION}),
        (
            "audience",
            {"audience": "company-internal"},
            {"audience": "external-public"},
            {"audience": "external-public"},
        ),
        ("annotations: absent keeps", {"annotations": {"a": "b"}}, {}, {"annotations": {"a": "b"}}),
        ("annotations: null keeps", {"annotations": {"a": "b"}}, {"annotations": None}, {"annotations": {"a": "b"}}),
        (
            "annotations: replaced as a whole",
            {"annotations": {"a": "b", "c": "d"}},
            {"annotations": {"a": "e"}},
            {"annotations": {"a": "e"}},
        ),
        ("labels: replaced as a whole", {"labels": {"a": "b"}}, {"labels": {}}, {"labels": {}}),
        ("ordering_key_fields", {}, {"ordering_key_fields": ["order_id"]}, {"ordering_key_fields": ["order_id"]}),
        ("event_owner_selector: added", {}, {"event_owner_selector": SELECTOR}, {"event_owner_selector": SELECTOR}),
        (
            "undefined to business",
            {"category": "undefined", "enrichment_strategies": []},
            {},
            {"category": "business", "enrichment_strategies": ["metadata_enrichment"]},
        ),
        ("forward to none", {}, {"compatibility_mode": "none"}, {"compatibility_mode": "none"}),
        ("forward to compatible", {}, {"compatibility_mode": "compatible"}, {"compatibility_mode": "compatible"}),
        (
            "compatible to forward",
            {"compatibility_mode": "compatible"},
            {"compatibility_mode": "forward"},
            {"compatibility_mode": "forward"},
        ),
        (
            "compatible to none",
            {"compatibility_mode": "compatible"},
            {"compatibility_mode": "none"},
            {"compatibility_mode": "none"},
        ),
        (
            "none to compatible",
            {"compatibility_mode": "none"},
            {"compatibility_mode": "compatible"},
            {"compatibility_mode": "compatible"},
        ),
    ),
)
def test_changeable_fields_change_and_omitted_ones_are_kept(client, create, name, before, changes, after):
    """Reference event-types#kept-fields, authorization#adding-and-removing, authorization#administrator-exemptions."""
    create(name, **before)
    response = client.put(f"/event-types/{name}", json=event_type_body(name=name, **changes))
    assert (response.status_code, response.content) == (200, b""), response.text
    assert response.headers["warning"] == '299 nakadi "Data access warning"'
    now = client.get(f"/event-types/{name}").json()
    assert {field: now[field] for field in after} == after
    assert now["schema"]["version"] == "1.0.0"


@pytest.mark.parametrize(
    ("before", "changes", "detail"),
    rows(
        ("name", {}, {"name": "other"}, "path does not match resource name"),
        ("category", {}, {"category": "data"}, "Category change"),
        (
            "enrichment_strategies",
            {"category": "undefined", "enrichment_strategies": []},
            {"compatibility_mode": "compatible"},
            "Category change",
        ),
        ("hash without key fields", {}, {"partition_strategy": "hash"}, "partition_key_fields is required"),
        (
            "default_statistic: partitions",
            {"default_statistic": FULL_STATISTIC},
            {"default_statistic": FULL_STATISTIC | {"read_parallelism": 2}},
            "default statistics must not be changed",
        ),
        (
            "delete to compact",
            {},
            {"cleanup_policy": "compact"},
            "Invalid cleanup_policy change: DELETE cannot be changed to COMPACT",
        ),
        (
            "compact to delete",
            {"cleanup_policy": "compact"},
            {"cleanup_policy": "delete"},
            "Invalid cleanup_policy change",
        ),
        ("authorization: removed", {"authorization": AUTHORIZATION}, {}, "authorization object"),
        ("audience: removed", {"audience": "external-public"}, {}, "event audience"),
        ("ordering_key_fields", {}, {"ordering_key_fields": ["x"]}, "ordering_key_fields [x] absent in schema"),
        ("schema", {}, {"schema": json_schema(properties={})}, "Invalid schema: "),
    ),
)
def test_a_forbidden_change_is_rejected_and_changes_nothing(client, create, name, before, changes, detail):
    """A change against each rule, with the text of its rejection.

    Source: reference event-types#constrained-changes, event-types#cleanup-policy-change, event-types#category-change,
    authorization#adding-and-removing.
    """
    create(name, **before)
    state = client.get(f"/event-types/{name}").json()
    body = event_type_body(**({"name": name} | changes))
    problem(client.put(f"/event-types/{name}", json=body), 422, detail)
    assert client.get(f"/event-types/{name}").json() == state


def test_changes_are_checked_in_the_order_of_the_contract(client, switch, name):
    """Reference event-types#update-checks: fields before the database, the database before existence.

    Source: reference authorization#order-of-answers.
    """
    switch("disable_db_write_operations")
    path = f"/event-types/{name}"
    problem(client.put(path, json=event_type_body(name=name, labels={"": "x"})), 422, "Key cannot be empty")
    problem(client.put(path, json=event_type_body(name=name)), 503, "Database is currently in read-only mode")
    switch("disable_db_write_operations", enabled=False)
    problem(client.put(path, json=event_type_body(name=name)), 404, f'EventType "{name}" does not exist.')


def test_a_change_returns_the_event_type_if_that_is_enabled(client, create, switch, name):
    """Reference event-types#update-event-type."""
    create(name)
    switch("return_body_on_create_update_event_type")
    for _ in range(5):
        response = client.put(f"/event-types/{name}", json=event_type_body(name=name, owning_application="x"))
        assert response.json() == client.get(f"/event-types/{name}").json()


def test_an_unknown_owning_application_is_rejected_only_when_it_changes(client, create, switch, name):
    """Reference event-types#owning-application."""
    create(name, owning_application="nobody")
    switch("validate_event_type_owning_app")
    body = event_type_body(name=name, owning_application="nobody", labels={"a": "b"})
    assert client.put(f"/event-types/{name}", json=body).status_code == 200
    assert client.put(f"/event-types/{name}", json=body | {"owning_application": "shop"}).status_code == 200
    response = client.put(f"/event-types/{name}", json=body)
    problem(response, 422, "Owning application is not valid: nobody")


def test_a_change_with_a_wider_schema_adds_a_version(client, create, name):
    """Reference event-types#update-event-type."""
    create(name)
    wider = SCHEMA.replace('"order_id":{"type":"string"}', '"order_id":{"type":"string"},"note":{"type":"string"}')
    body = event_type_body(name=name, schema={"type": "json_schema", "schema": wider})
    assert client.put(f"/event-types/{name}", json=body).status_code == 200
    assert client.get(f"/event-types/{name}").json()["schema"]["version"] == "1.1.0"


def test_a_change_that_would_overwrite_another_one_is_rejected(client, create, name):
    """Reference event-types#entity-tags."""
    create(name)
    tag = client.get(f"/event-types/{name}").headers["etag"]
    first, second = (event_type_body(name=name, owning_application=app) for app in ("first", "second"))
    answer = client.put(f"/event-types/{name}", json=first, headers={"If-Match": tag})
    assert answer.status_code == 200
    problem(client.put(f"/event-types/{name}", json=second, headers={"If-Match": tag}), 412, "modified concurrently")
    assert client.get(f"/event-types/{name}").json()["owning_application"] == "first"
    assert (
        client.put(f"/event-types/{name}", json=second, headers={"If-Match": answer.headers["etag"]}).status_code == 200
    )
    assert client.put(f"/event-types/{name}", json=first, headers={"If-Match": "*"}).status_code == 200
