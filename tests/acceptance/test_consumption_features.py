"""The effects of each feature on consumers, and what remains possible.

Source: reference settings-and-storages#feature-effects.
"""

import pytest

from tests.acceptance.conftest import event, problem, rows
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


NO_CREATION, NO_WRITES = "disable_subscription_creation", "disable_db_write_operations"
READ_ONLY = "Database is currently in read-only mode"
CREATION = "Subscription creation is temporarily unavailable"
STORAGE = {"id": "new", "storage_type": "kafka", "kafka_configuration": {}}
LISTS = {name: [{"data_type": "user", "value": "alice"}] for name in ("admins", "readers")}


@pytest.fixture
def subscribed(client, create, name):
    """The name of an event type with one event, and the subscription to it from the beginning."""
    create(name)
    assert client.post(f"/event-types/{name}/events", json=[event("1")]).status_code == 200
    return name, client.post("/subscriptions", json=body_of(name)).json()


def body_of(name, **changes):
    return {"owning_application": name, "event_types": [name], "read_from": "begin"} | changes


@pytest.mark.parametrize(
    ("feature", "operation", "changes", "status", "detail"),
    rows(
        (
            "disable_subscription_creation",
            NO_CREATION,
            "POST /subscriptions",
            {"consumer_group": "new"},
            503,
            CREATION,
        ),
        (
            "disable_subscription_creation: an existing one is returned",
            NO_CREATION,
            "POST /subscriptions",
            {},
            200,
            "",
        ),
        (
            "disable_subscription_creation: and may change",
            NO_CREATION,
            "PUT /subscriptions/{id}",
            {"labels": {"a": "b"}},
            204,
            "",
        ),
        (
            "disable_db_write_operations: create",
            NO_WRITES,
            "POST /subscriptions",
            {"consumer_group": "new"},
            503,
            READ_ONLY,
        ),
        (
            "disable_db_write_operations: an existing one is returned",
            NO_WRITES,
            "POST /subscriptions",
            {},
            200,
            "",
        ),
        (
            "disable_db_write_operations: update",
            NO_WRITES,
            "PUT /subscriptions/{id}",
            {"labels": {"a": "b"}},
            503,
            READ_ONLY,
        ),
        ("disable_db_write_operations: delete", NO_WRITES, "DELETE /subscriptions/{id}", {}, 503, READ_ONLY),
        (
            "disable_db_write_operations: timeline",
            NO_WRITES,
            "POST /event-types/{name}/timelines",
            {"storage_id": "default"},
            503,
            READ_ONLY,
        ),
        ("disable_db_write_operations: storage", NO_WRITES, "POST /storages", STORAGE, 503, READ_ONLY),
        (
            "disable_db_write_operations: resets go on",
            NO_WRITES,
            "PATCH /subscriptions/{id}/cursors",
            {"items": []},
            204,
            "",
        ),
        (
            "force_subscription_authz",
            "force_subscription_authz",
            "POST /subscriptions",
            {"consumer_group": "new"},
            422,
            "Authorization section is mandatory",
        ),
        (
            "force_subscription_authz: with a section",
            "force_subscription_authz",
            "POST /subscriptions",
            {"consumer_group": "new", "authorization": LISTS},
            201,
            "",
        ),
        (
            "validate_subscription_owning_app",
            "validate_subscription_owning_app",
            "POST /subscriptions",
            {"owning_application": "nobody"},
            422,
            "Owning application is not valid: nobody",
        ),
        (
            "delete_event_type_with_subscriptions: off",
            None,
            "DELETE /event-types/{name}",
            {},
            409,
            "as it has subscriptions",
        ),
    ),
)
def test_a_feature_rejects_some_requests_only(client, subscribed, switch, feature, operation, changes, status, detail):
    name, subscription = subscribed
    if feature:
        switch(feature)
    method, path = operation.format(name=name, id=subscription["id"]).split()
    answer = client.request(method, path, json=body_of(name) | changes)
    assert answer.status_code == status, answer.text
    if status >= 400:
        problem(answer, status, detail)


def test_streams_and_commits_continue_while_the_database_is_read_only(client, subscribed, switch):
    """Reference settings-and-storages#feature-effects: for the first stream of the subscription too."""
    _, subscription = subscribed
    path = f"/subscriptions/{subscription['id']}"
    switch("disable_db_write_operations")
    with open_stream(client, f"{path}/events?batch_flush_timeout=30") as stream:
        cursor = stream.filled_batch()["cursor"]
        headers = {"X-Nakadi-StreamId": stream.stream_id}
        assert client.post(f"{path}/cursors", json={"items": [cursor]}, headers=headers).status_code == 204
    (stored,) = client.get(f"{path}/cursors").json()["items"]
    assert stored["offset"] == cursor["offset"]


def test_deleting_an_event_type_with_its_subscriptions_ends_their_streams_with_the_reason(client, subscribed, switch):
    """Reference subscriptions#event-type-deletion, settings-and-storages#feature-effects."""
    name, subscription = subscribed
    switch("delete_event_type_with_subscriptions")
    path = f"/subscriptions/{subscription['id']}"
    with open_stream(client, f"{path}/events?batch_flush_timeout=30") as stream:
        cursor = stream.filled_batch()["cursor"]
        assert client.delete(f"/event-types/{name}").status_code == 200
        assert stream.batches()[-1]["info"] == {"debug": "Subscription deleted"}
    headers = {"X-Nakadi-StreamId": stream.stream_id}
    for answer in (client.get(path), client.get(f"{path}/stats"), client.get(f"{path}/cursors")):
        problem(answer, 404, f'Subscription with id "{subscription["id"]}" does not exist')
    problem(client.post(f"{path}/cursors", json={"items": [cursor]}, headers=headers), 422, "does not exist")


def test_repartitioning_can_be_switched_off(client, create, name):
    """Reference settings-and-storages#feature-effects, streams#parameter-errors; in a new broker it is on."""
    path, body = f"/event-types/{create(name)}/partition-count", {"partition_count": 2}
    for enabled, status in ((False, 501), (True, 204)):
        assert client.post("/settings/features", json={"feature": "repartitioning", "enabled": enabled}).is_success
        assert client.put(path, json=body).status_code == status


@pytest.mark.parametrize("enabled", [True, False])
def test_no_event_is_ever_misplaced(client, create, subscribe, switch, name, enabled):
    """Reference streams#hidden-events, skip_misplaced_events: an event that names another event type is rejected."""
    create(name)
    switch("skip_misplaced_events", enabled)
    answer = client.post(f"/event-types/{name}/events", json=[event(metadata={"event_type": "another"})])
    assert answer.status_code == 422
    assert client.post(f"/event-types/{name}/events", json=[event("1")]).status_code == 200
    with open_stream(client, f"/subscriptions/{subscribe(name, read_from='begin')}/events") as stream:
        (only,) = stream.events(1)
    assert (only["order_id"], only["metadata"]["event_type"]) == ("1", name)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    rows(
        ("no such feature", "POST", "/settings/features", {"feature": "nope", "enabled": True}),
        ("no state", "POST", "/settings/features", {"feature": "kpi_collection", "enabled": "x"}),
        ("no name", "POST", "/settings/features", {"enabled": True}),
    ),
)
def test_an_unknown_feature_is_rejected(client, method, path, body):
    assert client.request(method, path, json=body).status_code == 400
