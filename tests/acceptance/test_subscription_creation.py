"""`POST /subscriptions`: reference subscriptions#fields, subscriptions#creation-checks.

Source: reference subscriptions#subscription-objects.
"""

import concurrent.futures
import json
import uuid

import pytest

from tests.acceptance.conftest import ATTRIBUTE, event, partitions, problem, rows


LISTS = {"admins": [ATTRIBUTE], "readers": [ATTRIBUTE]}
NO_ELEMENT = "must contain at least one element"
NO_CHARACTER = "must contain at least one character"
NO_ATTRIBUTE = "must contain at least one attribute"


@pytest.fixture
def app():
    return f"app-{uuid.uuid4().hex[:8]}"


def test_a_created_subscription_is_returned_in_full_with_members_in_order(client, create, name, app):
    """Reference subscriptions#creation, subscriptions#show."""
    create(name)
    response = client.post("/subscriptions", json={"owning_application": app, "event_types": [name]})
    assert response.status_code == 201
    created = response.json()
    assert response.headers["location"] == response.headers["content-location"] == f"/subscriptions/{created['id']}"
    expected = {
        "id": str(uuid.UUID(created["id"])),
        "owning_application": app,
        "event_types": [name],
        "consumer_group": "default",
        "read_from": "end",
        "initial_cursors": [],
        "created_at": created["created_at"],
        "updated_at": created["created_at"],
        "authorization": None,
        "annotations": {},
        "labels": {},
    }
    assert list(created.items()) == list(expected.items())
    assert client.get(f"/subscriptions/{created['id']}").content == response.content


@pytest.mark.parametrize(
    ("field", "given", "kept"),
    rows(
        ("consumer_group", "consumer_group", "billing", "billing"),
        ("read_from in any case", "read_from", "BEGIN", "begin"),
        ("read_from null", "read_from", None, "end"),
        ("initial_cursors null", "initial_cursors", None, []),
        ("authorization", "authorization", LISTS, LISTS),
        ("annotations", "annotations", {"shop.example.org/a": "any text, at all"}, ...),
        ("labels", "labels", {"team": "red"}, ...),
        ("annotations null", "annotations", None, {}),
        ("labels null", "labels", None, {}),
    ),
)
def test_optional_fields_are_accepted(client, create, name, app, field, given, kept):
    create(name)
    body = {"owning_application": app, "event_types": [name], field: given}
    response = client.post("/subscriptions", json=body)
    assert response.status_code == 201, response.text
    assert response.json()[field] == (given if kept is ... else kept)


@pytest.mark.parametrize("field", ["id", "created_at", "updated_at", "status"])
def test_generated_fields_are_ignored(client, create, name, app, field):
    create(name)
    response = client.post("/subscriptions", json={"owning_application": app, "event_types": [name], field: "mine"})
    assert response.status_code == 201
    assert response.json().get(field) != "mine"


@pytest.mark.parametrize(
    ("changes", "status", "detail"),
    rows(
        ("owning_application null", {"owning_application": None}, 422, "owning_application must not be null"),
        ("owning_application empty", {"owning_application": ""}, 422, f"owning_application {NO_CHARACTER}"),
        ("event_types null", {"event_types": None}, 422, "event_types must not be null"),
        ("event_types empty", {"event_types": []}, 422, f"event_types {NO_ELEMENT}"),
        ("event_types no list", {"event_types": "a"}, 400, "event_types must be array or null"),
        ("consumer_group empty", {"consumer_group": ""}, 422, f"consumer_group {NO_CHARACTER}"),
        ("consumer_group null", {"consumer_group": None}, 422, "consumer_group must not be null"),
        (
            "read_from",
            {"read_from": "middle"},
            400,
            "Illegal enum value: 'middle'. Possible values: [begin, end, cursors]",
        ),
        (
            "initial_cursors",
            {"initial_cursors": [{"event_type": None}]},
            422,
            "\n".join(f"initial_cursors[0].{name} must not be null" for name in ("partition", "offset", "event_type")),
        ),
        (
            "authorization, no admins",
            {"authorization": {"readers": [ATTRIBUTE]}},
            422,
            "authorization.admins must not be null",
        ),
        (
            "authorization, no readers",
            {"authorization": {"admins": [ATTRIBUTE]}},
            422,
            "authorization.readers must not be null",
        ),
        (
            "authorization, empty",
            {"authorization": LISTS | {"readers": []}},
            422,
            f"authorization.readers {NO_ATTRIBUTE}",
        ),
        (
            "authorization, attribute",
            {"authorization": LISTS | {"admins": [{}]}},
            422,
            "authorization.admins[0].data_type must not be null\nauthorization.admins[0].value must not be null",
        ),
        ("annotations", {"annotations": {"-a": "b"}}, 422, "annotations[-a] Key name should start"),
        ("labels", {"labels": {"a": "b c"}}, 422, "labels[a] Should contain only allowed symbols"),
    ),
)
def test_fields_are_checked_against_their_rules(client, app, changes, status, detail):
    """The event type does not exist, and creation is off: later steps check that.

    Source: reference subscriptions#field-errors, subscriptions#authorization-section.
    """
    response = client.post("/subscriptions", json={"owning_application": app, "event_types": ["nope"]} | changes)
    problem(response, status)
    lines = response.json()["detail"].removesuffix("\n").split("\n")
    expected = detail.split("\n")
    if status == 422:
        expected = ['Field "{}" {}'.format(*line.split(" ", 1)) for line in expected]
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines


def test_an_existing_subscription_is_returned_and_nothing_else_is_checked(client, create, switch, name, app):
    """Reference subscriptions#existing-subscription, subscriptions#identity."""
    create(f"{name}.a")
    create(f"{name}.b")
    body = {"owning_application": app, "event_types": [f"{name}.b", f"{name}.a", f"{name}.b"]}
    first = client.post("/subscriptions", json=body).json()
    assert first["event_types"] == [f"{name}.a", f"{name}.b"]
    for feature in ("disable_subscription_creation", "disable_db_write_operations", "force_subscription_authz"):
        switch(feature)
    other = {"read_from": "cursors", "authorization": {"admins": [ATTRIBUTE] * 2, "readers": [ATTRIBUTE]}}
    response = client.post("/subscriptions", json=body | {"event_types": first["event_types"], **other})
    assert response.status_code == 200
    assert response.headers["location"] == f"/subscriptions/{first['id']}"
    assert "content-location" not in response.headers
    assert response.json() == first


def test_applications_groups_and_event_types_make_subscriptions_different(client, create, name, app):
    """Reference subscriptions#identity."""
    create(f"{name}.a")
    create(f"{name}.b")
    body = {"owning_application": app, "event_types": [f"{name}.a"]}
    changes = [
        {},
        {"owning_application": f"{app}x"},
        {"consumer_group": "x"},
        {"event_types": [f"{name}.a", f"{name}.b"]},
    ]
    answers = [client.post("/subscriptions", json=body | change) for change in changes]
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 4


def test_concurrent_identical_creations_create_one_subscription(server, create, name, app):
    """Reference subscriptions#existing-subscription, subscriptions#identity."""
    create(name)

    def attempt(_):
        with server.client() as client:
            return client.post("/subscriptions", json={"owning_application": app, "event_types": [name]})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert len({answer.json()["id"] for answer in answers}) == 1


@pytest.fixture
def thirteen(create, name):
    """Event types of 104 partitions together."""
    return [create(f"{name}.n{number}", **partitions(8)) for number in range(13)]


def test_rules_are_checked_in_the_documented_order(client, switch, thirteen):
    """Everything is wrong at first, and then one thing less each time.

    Source: reference subscriptions#initial-cursors, subscriptions#authorization-section.
    """
    features = ("disable_subscription_creation", "disable_db_write_operations", "force_subscription_authz")
    for feature in (*features, "validate_subscription_owning_app"):
        switch(feature)
    few = thirteen[:1]
    cursors = [{"event_type": few[0], "partition": str(number), "offset": "BEGIN"} for number in range(8)]
    twice = {"admins": [ATTRIBUTE, ATTRIBUTE], "readers": [ATTRIBUTE]}
    body = {
        "owning_application": "nobody",
        "event_types": [*thirteen, "nope.b", "nope.a"],
        "read_from": "cursors",
        "initial_cursors": [*cursors[:7], cursors[0]],
    }

    def refused(status, detail, **changes):
        body.update(changes)
        problem(client.post("/subscriptions", json=body), status, detail)

    refused(503, "Subscription creation is temporarily unavailable")
    switch(features[0], enabled=False)
    refused(503, "Database is currently in read-only mode")
    switch(features[1], enabled=False)
    refused(422, "Authorization section is mandatory")
    refused(422, "Failed to create subscription, event type(s) not found: 'nope.a', 'nope.b'", authorization=twice)
    too_many = "total partition count for subscription is 104, but the maximum partition count is 100"
    refused(422, too_many, event_types=thirteen)
    refused(422, "initial_cursors should contain cursors for all partitions of subscription", event_types=few)
    foreign = cursors[0] | {"partition": "8"}
    refused(
        422,
        "initial_cursors should contain cursors only for partitions of this subscription",
        initial_cursors=[*cursors, cursors[0], foreign],
    )
    refused(
        422,
        "there should be no more than 1 cursor for each partition in initial_cursors",
        initial_cursors=[cursors[0] | {"offset": "x"}, *cursors],
    )
    refused(422, "invalid offset x for partition 0", initial_cursors=[cursors[0] | {"offset": "x"}, *cursors[1:]])
    refused(422, "offset 7 for partition 1", initial_cursors=[cursors[0], cursors[1] | {"offset": "7"}, *cursors[2:]])
    refused(
        422,
        "authorization property 'admins' contains duplicated attribute(s): user:alice",
        initial_cursors=cursors,
    )
    refused(422, "Owning application is not valid: nobody", authorization=LISTS)
    response = client.post("/subscriptions", json=body | {"owning_application": "shop"})
    assert response.status_code == 201, response.text
    assert response.json()["initial_cursors"] == cursors


def test_initial_cursors_may_be_any_cursor_specs_and_are_shown_resolved(client, create, name, app):
    """Reference subscriptions#initial-cursors."""
    create(name, **partitions(2), partition_strategy="user_defined")
    client.post(f"/event-types/{name}/events", json=[event(metadata={"partition": "1"}) for _ in range(3)])
    body = {"owning_application": app, "event_types": [name], "read_from": "cursors"}
    cursors = [
        {"event_type": name, "partition": "0", "timestamp": "2020-01-01T00:00:00Z", "shift": None},
        {"event_type": name, "partition": "1", "offset": "END", "shift": -1.0},
    ]
    created = client.post("/subscriptions", json=body | {"initial_cursors": cursors}).json()
    assert json.dumps(created["initial_cursors"]) == json.dumps(
        [
            {"partition": "0", "offset": "001-0001--1", "event_type": name},
            {"partition": "1", "offset": "001-0001-000000000000000001", "event_type": name},
        ]
    )
    both = body | {"initial_cursors": [{"offset": "END"}], "consumer_group": "both"}
    created = client.post("/subscriptions", json=both).json()
    assert [each["offset"][-1] for each in created["initial_cursors"]] == ["1", "2"]
