"""`/settings`: reference settings-and-storages#administrators.

Source: reference settings-and-storages#features.
"""

import pytest

from tests.acceptance.conftest import event, problem, rows
from tests.support.builders import SCHEMA, event_type_body


DEFAULT_ADMIN = {"data_type": "service", "value": "stups_nakadi"}


def test_the_default_administrator_is_always_shown_and_never_stored(client):
    """The default administrator is in every list, whatever was posted.

    Source: reference settings-and-storages#get-admins, settings-and-storages#set-admins,
    authorization#default-administrator.
    """
    lists = client.get("/settings/admins").json()
    assert all(DEFAULT_ADMIN in lists[name] for name in ("admins", "readers", "writers"))
    alice = {"data_type": "user", "value": "alice"}
    changed = {name: [alice, DEFAULT_ADMIN] for name in ("admins", "readers", "writers")}
    assert client.post("/settings/admins", json=changed).json() == changed
    assert client.get("/settings/admins").json() == changed


@pytest.mark.parametrize("name", ["admins", "readers", "writers"])
def test_no_list_of_administrators_may_be_empty(client, name):
    """Reference settings-and-storages#set-admins."""
    lists = {"admins": [DEFAULT_ADMIN], "readers": [DEFAULT_ADMIN], "writers": [DEFAULT_ADMIN]} | {name: []}
    problem(client.post("/settings/admins", json=lists), 422, f'Field "{name}" must contain at least one attribute')


def test_the_blacklist_lists_its_entries(client, name):
    """Reference settings-and-storages#change-blacklist."""
    assert client.put(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert client.put(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert name in client.get("/settings/blacklist").json()["consumers"]["apps"]
    assert client.delete(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert client.delete(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert name not in client.get("/settings/blacklist").json()["consumers"]["apps"]
    for kind in ("NOPE", "consumer_app"):
        problem(client.put(f"/settings/blacklist/{kind}/{name}"), 400, "CONSUMER_APP")
        problem(client.delete(f"/settings/blacklist/{kind}/{name}"), 400, "CONSUMER_APP")


FEATURES = [
    "disable_event_type_creation",
    "disable_event_type_deletion",
    "delete_event_type_with_subscriptions",
    "event_type_deletion_only_admins",
    "disable_subscription_creation",
    "remote_tokeninfo",
    "kpi_collection",
    "audit_log_collection",
    "disable_db_write_operations",
    "force_event_type_authz",
    "force_subscription_authz",
    "repartitioning",
    "event_owner_selector_authz",
    "access_log_enabled",
    "token_subscriptions_iteration",
    "return_body_on_create_update_event_type",
    "validate_subscription_owning_application",
    "validate_event_type_owning_application",
    "skip_misplaced_events",
    "dlq_redrive_event_type_attachment_job",
    "force_data_lake_annotations",
]


def test_all_features_are_listed_and_all_but_repartitioning_are_off_by_default(client):
    """Reference settings-and-storages#get-features, settings-and-storages#feature-defaults."""
    items = client.get("/settings/features").json()["items"]
    assert [item["feature"] for item in items] == FEATURES
    assert [item["feature"] for item in items if item["enabled"]] == ["repartitioning"]


@pytest.mark.parametrize(
    ("spelling", "feature"),
    rows(
        ("as it is listed", "skip_misplaced_events", "skip_misplaced_events"),
        ("any case", "Access_Log_Enabled", "access_log_enabled"),
        ("token_subscription_iteration", "token_subscription_iteration", "token_subscriptions_iteration"),
        ("validate_subscription_owning_app", "validate_subscription_owning_app", FEATURES[16]),
        ("validate_event_type_owning_app", "validate_event_type_owning_app", FEATURES[17]),
    ),
)
def test_features_are_switched_under_each_of_their_names(client, spelling, feature):
    """Reference settings-and-storages#switch-feature, settings-and-storages#feature-names."""
    for body, enabled in (({"enabled": True}, True), ({"enabled": True}, True), ({"enabled": False}, False)):
        assert client.post("/settings/features", json={"feature": spelling} | body).status_code == 204
        assert {"feature": feature, "enabled": enabled} in client.get("/settings/features").json()["items"]


def test_a_feature_without_a_state_is_switched_off(client, switch):
    """Reference settings-and-storages#switch-feature."""
    switch("skip_misplaced_events")
    assert client.post("/settings/features", json={"feature": "skip_misplaced_events"}).status_code == 204
    assert {"feature": "skip_misplaced_events", "enabled": False} in client.get("/settings/features").json()["items"]


def test_unknown_features_are_rejected(client):
    """Reference settings-and-storages#switch-feature."""
    problem(client.post("/settings/features", json={"feature": "nope", "enabled": True}), 400, "Possible values: [")


def test_creation_of_event_types_can_be_switched_off(client, switch, name):
    switch("disable_event_type_creation")
    problem(client.post("/event-types", json=event_type_body(name=name)), 501, "Event Type creation is disabled")


def test_creation_of_subscriptions_can_be_switched_off(client, create, switch, name):
    create(name)
    switch("disable_subscription_creation")
    body = {"owning_application": name, "event_types": [name]}
    problem(client.post("/subscriptions", json=body), 503, "Subscription creation is temporarily unavailable")


@pytest.fixture
def subscribed(create, subscribe, name):
    """The name of an event type, and the id of a subscription to it."""
    return create(name), subscribe(name)


ALICE = {"data_type": "user", "value": "alice"}
ADMINS = {"admins": [ALICE], "readers": [ALICE], "writers": [ALICE]}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    rows(
        ("event type: create", "POST", "/event-types", event_type_body(name="test.read-only"), 503),
        ("event type: update", "PUT", "/event-types/{name}", ..., 503),
        ("event type: delete", "DELETE", "/event-types/{name}", None, 503),
        ("admins", "POST", "/settings/admins", ADMINS, 503),
        (
            "subscription: create",
            "POST",
            "/subscriptions",
            {"owning_application": "read-only", "event_types": ["nope"]},
            503,
        ),
        ("subscription: update", "PUT", "/subscriptions/{id}", {"owning_application": "x"}, 503),
        ("subscription: delete", "DELETE", "/subscriptions/{id}", None, 503),
        (
            "schemas are written",
            "POST",
            "/event-types/{name}/schemas",
            {"type": "json_schema", "schema": SCHEMA.replace("{", '{"title":"x",', 1)},
            201,
        ),
        ("blacklist is written", "PUT", "/settings/blacklist/CONSUMER_APP/test.read-only", None, 204),
        ("blacklist is written again", "DELETE", "/settings/blacklist/CONSUMER_APP/test.read-only", None, 204),
        ("features are written", "POST", "/settings/features", {"feature": "access_log_enabled"}, 204),
        ("events are published", "POST", "/event-types/{name}/events", [event()], 200),
        ("reading continues", "GET", "/event-types/{name}", None, 200),
    ),
)
def test_writing_to_the_database_can_be_switched_off(client, subscribed, switch, method, path, body, status):
    """Reference common#read-only-mode."""
    name, subscription_id = subscribed
    path = path.format(name=name, id=subscription_id)
    switch("disable_db_write_operations")
    response = client.request(method, path, json=event_type_body(name=name) if body is ... else body)
    if status == 503:
        problem(response, 503, "Database is currently in read-only mode")
    else:
        assert response.status_code == status, response.text


def test_authorization_can_be_made_mandatory(client, create, switch, name):
    """Reference authorization#mandatory-sections."""
    create(name)
    switch("force_event_type_authz")
    for response in (
        client.post("/event-types", json=event_type_body(name=f"{name}.x")),
        client.put(f"/event-types/{name}", json=event_type_body(name=name)),
    ):
        problem(response, 422, "Authorization section is mandatory")


def test_owning_applications_of_subscriptions_can_be_checked(client, create, switch, name):
    create(name)
    switch("validate_subscription_owning_app")
    body = {"owning_application": "nobody", "event_types": [name]}
    problem(client.post("/subscriptions", json=body), 422, "Owning application is not valid: nobody")
    assert client.post("/subscriptions", json=body | {"owning_application": "shop"}).status_code == 201


def test_a_decision_about_the_data_lake_can_be_made_mandatory(client, switch, name):
    """Reference event-types#data-lake-annotations."""
    switch("force_data_lake_annotations")
    body = event_type_body(name=name)
    problem(client.post("/event-types", json=body), 422, "datalake.zalando.org/materialize-events")
    decided = body | {"annotations": {"datalake.zalando.org/materialize-events": "off"}}
    assert client.post("/event-types", json=decided).status_code == 201


@pytest.mark.parametrize(
    ("path", "body"),
    rows(
        ("partition strategies", "/registry/partition-strategies", ["hash", "user_defined", "random"]),
        ("enrichment strategies", "/registry/enrichment-strategies", ["metadata_enrichment"]),
    ),
)
def test_the_strategies_are_listed(client, path, body):
    """Reference event-types#strategies."""
    assert client.get(path).json() == body
