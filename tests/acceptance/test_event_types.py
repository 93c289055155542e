"""`/event-types`, read and deleted: reference event-types#list-event-types, event-types#delete-checks.

Source: reference event-types#reading, event-types#deleting.
"""

import pytest

from tests.acceptance.conftest import (
    AUTHORIZATION,
    event,
    problem,
    rows,
)


def test_an_unknown_event_type_is_not_found(client):
    """Reference event-types#get-event-type."""
    problem(client.get("/event-types/nope"), 404, 'EventType "nope" does not exist.')


def test_the_list_is_sorted_and_filtered(client, create, name):
    """Reference event-types#list-filters, common#query-parameters."""
    create(f"{name}.b", owning_application=name)
    create(f"{name}.a", owning_application=name, authorization=AUTHORIZATION)
    found = client.get("/event-types", params={"owning_application": name}).json()
    assert [each["name"] for each in found] == [f"{name}.a", f"{name}.b"]
    found = client.get("/event-types", params={"owning_application": name, "writer": "user:alice"}).json()
    assert [each["name"] for each in found] == [f"{name}.a"]
    names = [each["name"] for each in client.get("/event-types").json()]
    assert names == sorted(names)
    everybody = {"data_type": "*", "value": "*"}
    create(f"{name}.c", authorization={list_: [everybody] for list_ in ("admins", "readers", "writers")})
    for writer, count in (("*:*", 1), ("user:bob", 0)):
        found = client.get("/event-types", params={"writer": writer}).json()
        assert len([each for each in found if each["name"] == f"{name}.c"]) == count
    for malformed in ("alice", "user:alice:x", ""):
        refused = client.get("/event-types", params={"writer": malformed} if malformed else "writer=%20")
        problem(refused, 400, "Authorization format is incorrect. Should be data_type:value")


def test_a_deleted_event_type_is_not_found_and_its_name_is_free(client, create, name):
    """Reference event-types#delete-event-type."""
    create(name)
    client.post(f"/event-types/{name}/events", json=[event()])
    response = client.delete(f"/event-types/{name}")
    assert (response.status_code, response.content) == (200, b"")
    problem(client.get(f"/event-types/{name}"), 404)
    problem(client.post(f"/event-types/{name}/events", json=[event()]), 404)
    create(name)
    offsets = client.get(f"/event-types/{name}/partitions").json()[0]
    assert offsets["newest_available_offset"] == "001-0001--1"


ARCHIVER = {"owning_application": "nakadi_archiver", "consumer_group": "nakadi_to_s3"}


@pytest.mark.parametrize(
    ("subscriptions", "feature", "status"),
    rows(
        ("#7 none", [], None, 200),
        ("#7 of anybody", [{}], None, 409),
        ("#7 of the archiver", [ARCHIVER], None, 200),
        ("#7 of the archiver, another group", [ARCHIVER | {"consumer_group": "x"}], None, 409),
        ("#7 not all of the archiver", [ARCHIVER, {}], None, 409),
        ("#7 with the feature", [{}, ARCHIVER], "delete_event_type_with_subscriptions", 200),
        ("a feature without effect", [{}], "event_type_deletion_only_admins", 409),
    ),
)
def test_event_types_are_deleted_with_their_deletable_subscriptions(
    client, create, subscribe, switch, name, subscriptions, feature, status
):
    """Reference event-types#deletable-subscriptions."""
    create(name)
    ids = [subscribe(name, **changes) for changes in subscriptions]
    if feature:
        switch(feature)
    response = client.delete(f"/event-types/{name}")
    if status == 409:
        problem(response, 409, f"Can't remove event type {name}, as it has subscriptions")
    else:
        assert (response.status_code, response.content) == (200, b"")
    left = 200 if status == 409 else 404
    assert {client.get(f"/subscriptions/{each}").status_code for each in ids} <= {left}
    assert client.get(f"/event-types/{name}").status_code == left


def test_deletion_is_checked_in_the_order_of_the_contract(client, create, subscribe, switch, name):
    """Reference event-types#delete-checks, authorization#mandatory-sections."""
    path = f"/event-types/{name}"
    switch("force_event_type_authz")
    switch("disable_db_write_operations")
    problem(client.delete(path), 503, "Database is currently in read-only mode")
    switch("disable_db_write_operations", enabled=False)
    problem(client.delete(path), 404, f'EventType "{name}" does not exist.')
    switch("force_event_type_authz", enabled=False)
    create(name)
    subscribe(name)
    switch("force_event_type_authz")
    refusal = f"Access on ADMIN event-type:{name} denied; Reason : You cannot delete event-type without authorization."
    problem(client.delete(path), 403, refusal)
    switch("force_event_type_authz", enabled=False)
    problem(client.delete(path), 409)


def test_an_unchanged_event_type_is_not_sent_again(client, create, name):
    """Reference event-types#entity-tags."""
    create(name)
    tag = client.get(f"/event-types/{name}").headers["etag"]
    response = client.get(f"/event-types/{name}", headers={"If-None-Match": tag})
    assert (response.status_code, response.content) == (304, b"")
    assert client.get(f"/event-types/{name}", headers={"If-None-Match": '"other"'}).status_code == 200
