"""`/settings` and `/storages`: registry contract 9."""

import pytest

from tests.acceptance.conftest import problem
from tests.support.builders import event_type_body


DEFAULT_ADMIN = {"data_type": "service", "value": "stups_nakadi"}


def test_the_default_administrator_is_always_shown_and_never_stored(client):
    lists = client.get("/settings/admins").json()
    assert all(DEFAULT_ADMIN in lists[name] for name in ("admins", "readers", "writers"))
    alice = {"data_type": "user", "value": "alice"}
    changed = {name: [alice, DEFAULT_ADMIN] for name in ("admins", "readers", "writers")}
    assert client.post("/settings/admins", json=changed).json() == changed
    assert client.get("/settings/admins").json() == changed


@pytest.mark.parametrize("name", ["admins", "readers", "writers"])
def test_no_list_of_administrators_may_be_empty(client, name):
    lists = {"admins": [DEFAULT_ADMIN], "readers": [DEFAULT_ADMIN], "writers": [DEFAULT_ADMIN]} | {name: []}
    problem(client.post("/settings/admins", json=lists), 422, f'Field "{name}" must contain at least one attribute')


def test_the_blacklist_shows_what_is_blocked(client, name):
    assert client.put(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert client.put(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert name in client.get("/settings/blacklist").json()["consumers"]["apps"]
    assert client.delete(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert client.delete(f"/settings/blacklist/CONSUMER_APP/{name}").status_code == 204
    assert name not in client.get("/settings/blacklist").json()["consumers"]["apps"]
    problem(client.put(f"/settings/blacklist/NOPE/{name}"), 400, "CONSUMER_APP")


def test_features_are_listed_and_switched(client):
    items = client.get("/settings/features").json()["items"]
    assert {"feature": "access_log_enabled", "enabled": False} in items
    for enabled in (True, False):
        body = {"feature": "Access_Log_Enabled", "enabled": enabled}
        assert client.post("/settings/features", json=body).status_code == 204
        items = client.get("/settings/features").json()["items"]
        assert {"feature": "access_log_enabled", "enabled": enabled} in items
    problem(client.post("/settings/features", json={"feature": "nope", "enabled": True}), 400, "Possible values")
    problem(client.post("/settings/features", json={"enabled": True}), 400)


@pytest.fixture
def switch(client):
    """Switches features, off again after the test."""
    switched = []

    def switch(feature):
        switched.append(feature)
        assert client.post("/settings/features", json={"feature": feature, "enabled": True}).status_code == 204

    yield switch
    for feature in switched:
        client.post("/settings/features", json={"feature": feature, "enabled": False})


def test_creation_of_event_types_can_be_switched_off(client, switch, name):
    switch("disable_event_type_creation")
    problem(client.post("/event-types", json=event_type_body(name=name)), 501, "Event Type creation is disabled")


def test_creation_of_subscriptions_can_be_switched_off(client, create, switch, name):
    create(name)
    switch("disable_subscription_creation")
    body = {"owning_application": name, "event_types": [name]}
    problem(client.post("/subscriptions", json=body), 503, "Subscription creation is temporarily unavailable")


def test_writing_to_the_database_can_be_switched_off(client, create, switch, name):
    create(name)
    switch("disable_db_write_operations")
    problem(client.delete(f"/event-types/{name}"), 503, "Database is currently in read-only mode")
    assert client.get(f"/event-types/{name}").status_code == 200


def test_authorization_can_be_made_mandatory(client, switch, name):
    switch("force_event_type_authz")
    problem(client.post("/event-types", json=event_type_body(name=name)), 422, "Authorization section is mandatory")


def test_the_default_storage_is_there_from_the_start(client):
    assert client.get("/storages").json() == [{"id": "default", "storage_type": "embedded", "default": True}]
    assert client.get("/storages/default").json()["storage_type"] == "embedded"
    problem(client.get("/storages/nope"), 404, "No storage with id nope")
