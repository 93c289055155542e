"""`/subscriptions`: consumption contract 5."""

import concurrent.futures
import uuid

import pytest

from tests.acceptance.conftest import event, partitions, problem


ATTRIBUTE = {"data_type": "user", "value": "alice"}


@pytest.fixture
def app():
    return f"app-{uuid.uuid4().hex[:8]}"


def test_a_created_subscription_is_answered_in_full(client, create, name, app):
    create(name)
    response = client.post("/subscriptions", json={"owning_application": app, "event_types": [name]})
    assert response.status_code == 201
    created = response.json()
    assert response.headers["location"] == response.headers["content-location"] == f"/subscriptions/{created['id']}"
    assert created == created | {
        "owning_application": app,
        "event_types": [name],
        "consumer_group": "default",
        "read_from": "end",
        "initial_cursors": [],
        "authorization": None,
        "annotations": {},
        "labels": {},
    }
    assert client.get(f"/subscriptions/{created['id']}").json() == created


def test_the_same_subscription_again_is_found(client, create, name, app):
    create(f"{name}.a")
    create(f"{name}.b")
    body = {"owning_application": app, "event_types": [f"{name}.b", f"{name}.a"]}
    first = client.post("/subscriptions", json=body).json()
    assert first["event_types"] == [f"{name}.a", f"{name}.b"]
    response = client.post("/subscriptions", json=body | {"event_types": first["event_types"], "read_from": "begin"})
    assert response.status_code == 200
    assert "content-location" not in response.headers
    assert response.json() == first
    other = client.post("/subscriptions", json=body | {"consumer_group": "other"})
    assert other.status_code == 201


def test_concurrent_identical_creations_give_one_subscription(server, create, name, app):
    create(name)

    def attempt(_):
        with server.client() as client:
            return client.post("/subscriptions", json={"owning_application": app, "event_types": [name]})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"owning_application": None}, 'Field "owning_application" must not be null'),
        ({"owning_application": ""}, 'Field "owning_application" must contain at least one character'),
        ({"event_types": None}, 'Field "event_types" must not be null'),
        ({"event_types": []}, 'Field "event_types" must contain at least one element'),
        ({"event_types": ["nope.b", "nope.a"]}, "event type(s) not found: 'nope.a', 'nope.b'"),
        ({"read_from": "cursors"}, "initial_cursors should contain cursors for all partitions of subscription"),
        (
            {"authorization": {"admins": [ATTRIBUTE]}},
            'Field "authorization.readers" must not be null',
        ),
        (
            {"authorization": {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE, ATTRIBUTE]}},
            "authorization property 'readers' contains duplicated attribute(s): user:alice",
        ),
    ],
)
def test_a_broken_rule_is_named(client, create, name, app, changes, detail):
    create(name)
    body = {"owning_application": app, "event_types": [name]} | changes
    problem(client.post("/subscriptions", json=body), 422, detail)


def test_an_unknown_read_from_is_refused(client, app):
    body = {"owning_application": app, "event_types": ["a"], "read_from": "middle"}
    problem(client.post("/subscriptions", json=body), 400, "Illegal enum value: 'middle'")


def test_initial_cursors_must_name_all_partitions_once_and_be_available(client, create, name, app):
    create(name, partition_strategy="user_defined", **partitions(2))
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "0"})])

    def attempt(*cursors):
        items = [{"event_type": name, "partition": partition, "offset": offset} for partition, offset in cursors]
        body = {"owning_application": app, "event_types": [name], "read_from": "cursors", "initial_cursors": items}
        return client.post("/subscriptions", json=body)

    problem(attempt(("0", "BEGIN")), 422, "for all partitions")
    problem(attempt(("0", "BEGIN"), ("1", "BEGIN"), ("2", "BEGIN")), 422, "only for partitions of this subscription")
    problem(attempt(("0", "BEGIN"), ("1", "BEGIN"), ("1", "BEGIN")), 422, "no more than 1 cursor")
    problem(attempt(("0", "001-0001-000000000000000007"), ("1", "BEGIN")), 422, "is unavailable as retention")
    problem(attempt(("0", "x"), ("1", "BEGIN")), 422, "invalid offset x for partition 0")
    assert attempt(("0", "0"), ("1", "001-0001--1")).status_code == 201


def test_a_subscription_has_a_limit_of_partitions(client, create, name, app):
    names = [create(f"{name}.n{number}", **partitions(8)) for number in range(13)]
    body = {"owning_application": app, "event_types": names}
    problem(
        client.post("/subscriptions", json=body),
        422,
        "total partition count for subscription is 104, but the maximum partition count is 100",
    )


def test_what_does_not_exist_is_not_found(client):
    detail = 'Subscription with id "nope" does not exist'
    problem(client.get("/subscriptions/nope"), 404, detail)
    problem(client.delete("/subscriptions/nope"), 404, detail)
    problem(client.get("/subscriptions/nope/stats"), 404, detail)
    problem(client.get("/subscriptions/nope/cursors"), 404, detail)
    problem(client.get("/subscriptions/nope/events"), 404, detail)


def test_authorization_annotations_and_labels_may_change(client, create, subscribe, name):
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
    ("changes", "what"),
    [
        ({"consumer_group": "x"}, "consumer group"),
        ({"event_types": ["x"]}, "event types"),
        ({"owning_application": "x"}, "owning application"),
        ({"read_from": "begin"}, "read from"),
    ],
)
def test_the_rest_may_not_change(client, create, subscribe, name, changes, what):
    create(name)
    path = f"/subscriptions/{subscribe(name)}"
    problem(client.put(path, json=client.get(path).json() | changes), 422, f"Not allowed to change subscription {what}")


def test_a_deleted_subscription_is_gone_and_can_be_created_anew(client, create, name, app):
    create(name)
    body = {"owning_application": app, "event_types": [name]}
    first = client.post("/subscriptions", json=body).json()["id"]
    assert client.delete(f"/subscriptions/{first}").status_code == 204
    problem(client.get(f"/subscriptions/{first}"), 404)
    second = client.post("/subscriptions", json=body)
    assert second.status_code == 201
    assert second.json()["id"] != first


@pytest.fixture
def three(client, create, name, app):
    """Three subscriptions of one application, in the order of their creation."""
    create(name)
    groups = ("one", "two", "three")
    bodies = [{"owning_application": app, "event_types": [name], "consumer_group": group} for group in groups]
    return [client.post("/subscriptions", json=body).json()["id"] for body in bodies]


def test_the_list_is_paged_newest_first(client, three, app):
    body = client.get("/subscriptions", params={"owning_application": app, "limit": 2}).json()
    assert [item["id"] for item in body["items"]] == three[:0:-1]
    href = f"/subscriptions?owning_application={app}&offset=2&limit=2"
    assert body["_links"] == {"next": {"href": href}}
    body = client.get(href).json()
    assert [item["id"] for item in body["items"]] == three[:1]
    assert body["_links"] == {"prev": {"href": f"/subscriptions?owning_application={app}&offset=0&limit=2"}}


def test_the_list_can_be_walked_by_tokens_in_both_directions(client, three, app):
    ordered = sorted(three)
    body = client.get("/subscriptions", params={"owning_application": app, "limit": 2, "token": "new"}).json()
    assert [item["id"] for item in body["items"]] == ordered[:2]
    assert set(body["_links"]) == {"next"}
    body = client.get(body["_links"]["next"]["href"]).json()
    assert [item["id"] for item in body["items"]] == ordered[2:]
    assert set(body["_links"]) == {"prev"}
    body = client.get(body["_links"]["prev"]["href"]).json()
    assert [item["id"] for item in body["items"]] == ordered[:2]


def test_the_list_is_filtered_by_all_event_types(client, create, subscribe, name, app):
    create(f"{name}.a")
    create(f"{name}.b")
    both = subscribe(f"{name}.a", f"{name}.b", owning_application=app)
    subscribe(f"{name}.a", owning_application=app)
    query = f"/subscriptions?event_type={name}.a&event_type={name}.b"
    assert [item["id"] for item in client.get(query).json()["items"]] == [both]


def test_the_list_is_filtered_by_reader(client, create, subscribe, name, app):
    create(name)
    lists = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE]}
    wanted = subscribe(name, owning_application=app, authorization=lists)
    subscribe(name, owning_application=app, consumer_group="other")
    found = client.get("/subscriptions", params={"owning_application": app, "reader": "user:alice"}).json()
    assert [item["id"] for item in found["items"]] == [wanted]


def test_the_list_may_show_the_status(client, three, app, name):
    found = client.get("/subscriptions", params={"owning_application": app, "show_status": "true"}).json()
    (status,) = found["items"][0]["status"]
    assert status["event_type"] == name
    assert status["partitions"] == [{"partition": "0", "state": "unassigned", "stream_id": ""}]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "offset=-1", "offset=x", "reader=alice", "token=X1"])
def test_pages_have_limits(client, query):
    problem(client.get(f"/subscriptions?{query}"), 400)
