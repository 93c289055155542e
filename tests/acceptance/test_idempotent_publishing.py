"""Repeated publishing: the header Idempotency-Key, and event types that store an eid once.

Source: reference publishing#sending-again.
"""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.conftest import event, problem
from tests.support.builders import event_type_body


pytestmark = pytest.mark.both_modes


ONCE = {"annotations": {"rioni.io/idempotent-publishing": "on"}}


def stored(client, name):
    """The number of stored events of an event type."""
    return int(client.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"][-18:]) + 1


def test_a_repeated_batch_is_stored_once(client, server, create, name):
    """Reference publishing#idempotency-keys."""
    create(name)
    path, headers = f"/event-types/{name}/events", {"Idempotency-Key": str(uuid.uuid4())}
    body = json.dumps([event("1"), event("2")])
    for _ in range(5):
        response = client.post(path, content=body, headers=headers)
        assert (response.status_code, response.content) == (200, b"")
    assert stored(client, name) == 2
    assert server.metric(f'rioni_duplicate_events_total{{event_type="{name}"}}') == 8
    assert server.metric(f'rioni_published_events_total{{event_type="{name}"}}') == 2


def test_a_batch_sent_concurrently_to_all_workers_is_stored_once(server, client, create, name):
    create(name)
    headers, body = {"Idempotency-Key": "mine"}, json.dumps([event("1"), event("2")])

    def send(_):
        with server.client() as other:  # its own connection, which any worker may accept
            return other.post(f"/event-types/{name}/events", content=body, headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(24))) == {200}
    assert stored(client, name) == 2


def test_a_key_is_for_one_batch(client, create, name):
    """Reference publishing#reused-keys."""
    create(name)
    path, headers = f"/event-types/{name}/events", {"Idempotency-Key": "mine"}
    assert client.post(path, json=[event("1")], headers=headers).status_code == 200
    problem(client.post(path, json=[event("2")], headers=headers), 422, "another batch was stored under this key")
    assert stored(client, name) == 1


def test_a_rejected_batch_may_be_corrected_under_the_same_key(client, create, name):
    """Reference publishing#reused-keys."""
    create(name)
    path, headers = f"/event-types/{name}/events", {"Idempotency-Key": "mine"}
    assert client.post(path, json=[event(1)], headers=headers).status_code == 422
    assert client.post(path, json=[event("1")], headers=headers).status_code == 200
    assert stored(client, name) == 1


def test_a_key_of_one_event_type_may_be_used_for_others_and_for_its_successor(client, create, name):
    """Reference publishing#idempotency-keys."""
    headers = {"Idempotency-Key": "mine"}
    for each in (name, f"{name}.other"):
        create(each)
        assert client.post(f"/event-types/{each}/events", json=[event("1")], headers=headers).status_code == 200
        assert stored(client, each) == 1
    client.delete(f"/event-types/{name}")
    create(name)
    assert client.post(f"/event-types/{name}/events", json=[event("1")], headers=headers).status_code == 200
    assert stored(client, name) == 1


def test_events_without_eid_are_stored_once_too(client, create, name):
    create(name, category="undefined", enrichment_strategies=[], schema={"type": "json_schema", "schema": "{}"})
    for _ in range(2):
        client.post(f"/event-types/{name}/events", json=[{"a": 1}], headers={"Idempotency-Key": "mine"})
    assert stored(client, name) == 1


def test_a_deletion_is_another_request_than_a_publication(client, create, name):
    """Reference publishing#reused-keys."""
    create(name, cleanup_policy="compact")
    headers = {"Idempotency-Key": "mine"}
    body = [event(metadata={"partition_compaction_key": "a"})]
    assert client.post(f"/event-types/{name}/events", json=body, headers=headers).status_code == 200
    problem(client.post(f"/event-types/{name}/deleted-events", json=body, headers=headers), 422, "another batch")


def test_an_eid_is_stored_once_if_the_event_type_requires_it(client, create, name):
    """Reference publishing#event-ids."""
    create(name, **ONCE)
    path, events = f"/event-types/{name}/events", [event(str(number)) for number in range(3)]
    for batch in (events[:2], events, events[1:], [events[2], events[2]]):
        assert client.post(path, json=batch).status_code == 200
    assert stored(client, name) == 3


@pytest.mark.parametrize("switch", ["yes", "", "ON"])
def test_an_invalid_value_of_the_option_is_rejected(client, name, switch):
    """Reference publishing#event-ids."""
    body = event_type_body(name=name, annotations={"rioni.io/idempotent-publishing": switch})
    problem(client.post("/event-types", json=body), 422, "must be one of on, off")
