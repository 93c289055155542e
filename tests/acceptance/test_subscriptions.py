"""`/subscriptions`: reference subscriptions#fields.

Source: reference subscriptions#operations.
"""

import uuid

import pytest

from tests.acceptance.conftest import problem, rows
from tests.support.builders import event_type_body
from tests.support.server import running_server


ATTRIBUTE = {"data_type": "user", "value": "alice"}


@pytest.fixture
def app():
    return f"app-{uuid.uuid4().hex[:8]}"


def test_unknown_resources_are_not_found(client):
    """Reference subscriptions#show."""
    detail = 'Subscription with id "nope" does not exist'
    problem(client.get("/subscriptions/nope"), 404, detail)
    problem(client.delete("/subscriptions/nope"), 404, detail)
    problem(client.get("/subscriptions/nope/stats"), 404, detail)
    problem(client.get("/subscriptions/nope/cursors"), 404, detail)
    problem(client.get("/subscriptions/nope/events"), 404, detail)


def test_authorization_annotations_and_labels_may_change(client, create, subscribe, name):
    """Reference subscriptions#change."""
    create(name)
    path = f"/subscriptions/{subscribe(name)}"
    before = client.get(path).json()
    lists = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE]}
    response = client.put(path, json=before | {"authorization": lists, "annotations": {"a": "b"}})
    assert (response.status_code, response.content) == (204, b"")
    after = client.get(path).json()
    assert after == before | {"authorization": lists, "annotations": {"a": "b"}, "updated_at": after["updated_at"]}
    problem(client.put(path, json=before), 422, "Changing authorization object to `null` is not possible")


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    rows(
        ("consumer group", {"consumer_group": "x"}, 422, "Not allowed to change subscription consumer group"),
        (
            "initial cursors",
            {"initial_cursors": [{"event_type": "x", "partition": "0", "offset": "BEGIN"}]},
            422,
            "initial cursors",
        ),
        ("validated as in create", {"owning_application": ""}, 422, "must contain at least one character"),
        ("a wrong literal", {"read_from": "x"}, 400, "Illegal enum value: 'x'"),
        ("labels", {"labels": {"a": "b c"}}, 422, 'Field "labels[a]"'),
    ),
)
def test_other_fields_may_not_change(client, create, subscribe, name, changes, status, detail):
    """Reference subscriptions#change."""
    create(name)
    path = f"/subscriptions/{subscribe(name)}"
    before = client.get(path).json()
    problem(client.put(path, json=before | changes), status, detail)
    assert client.get(path).json() == before


@pytest.mark.parametrize(
    ("sent", "kept"),
    rows(
        ("absent: kept", {}, {"annotations": {"a": "1"}, "labels": {"b": "2"}}),
        ("null: kept", {"annotations": None, "labels": None}, {"annotations": {"a": "1"}, "labels": {"b": "2"}}),
        ("empty: removed", {"annotations": {}, "labels": {}}, {"annotations": {}, "labels": {}}),
        ("annotations", {"annotations": {"c": "3"}}, {"annotations": {"c": "3"}, "labels": {"b": "2"}}),
        ("labels", {"labels": {"c": "3"}}, {"annotations": {"a": "1"}, "labels": {"c": "3"}}),
    ),
)
def test_omitted_annotations_and_labels_are_kept(client, create, subscribe, name, sent, kept):
    create(name)
    path = f"/subscriptions/{subscribe(name, annotations={'a': '1'}, labels={'b': '2'})}"
    before = client.get(path).json()
    body = {member: before[member] for member in ("owning_application", "event_types", "consumer_group")}
    assert client.put(path, json=body | sent).status_code == 204
    after = client.get(path).json()
    assert {member: after[member] for member in kept} == kept
    assert (after["updated_at"] > before["updated_at"]) == (kept != {"annotations": {"a": "1"}, "labels": {"b": "2"}})


def test_an_unknown_subscription_is_not_changed(client, create, name):
    """Reference subscriptions#change."""
    body = {"owning_application": "x", "event_types": [create(name)]}
    problem(client.put("/subscriptions/nope", json=body), 404, 'Subscription with id "nope" does not exist')


def test_a_deleted_subscription_is_not_found_and_can_be_created_again(client, create, name, app):
    """Reference subscriptions#deletion."""
    create(name)
    body = {"owning_application": app, "event_types": [name]}
    first = client.post("/subscriptions", json=body).json()["id"]
    assert client.delete(f"/subscriptions/{first}").status_code == 204
    problem(client.get(f"/subscriptions/{first}"), 404)
    second = client.post("/subscriptions", json=body)
    assert second.status_code == 201
    assert second.json()["id"] != first


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_the_dead_letter_queue_is_created_with_the_first_subscription_that_needs_it(tmp_path, method):
    """Reference system-event-types#creation, system-event-types#dead-letter-definition."""
    policy = {"nakadi.zalando.org/subscription-unprocessable-event-policy": "DEAD_LETTER_QUEUE"} | {
        "nakadi.zalando.org/subscription-max-event-send-count": "3"
    }
    with running_server(tmp_path / "data", "--workers", "1") as server, server.client() as client:
        assert client.get("/event-types").json() == []
        assert client.post("/event-types", json=event_type_body(name="order.created")).is_success
        body = {"owning_application": "billing", "event_types": ["order.created"]}
        if method == "PUT":
            path = f"/subscriptions/{client.post('/subscriptions', json=body).json()['id']}"
            assert client.get("/event-types/nakadi.dead.letter.queue").status_code == 404
        else:
            path = "/subscriptions"
        assert client.request(method, path, json=body | {"annotations": policy}).is_success
        queue = client.get("/event-types/nakadi.dead.letter.queue").json()
    assert (queue["category"], queue["options"]) == ("business", {"retention_time": 86_400_000})
