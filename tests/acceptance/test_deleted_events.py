"""`POST /event-types/{name}/deleted-events`: reference publishing#delete-events.

Source: reference publishing#deletions.
"""

import pytest

from tests.acceptance.conftest import event, partitions, problem
from tests.support.server import open_stream


pytestmark = pytest.mark.both_modes


COMPACTED = {"cleanup_policy": "compact", "partition_strategy": "hash", "partition_key_fields": ["order_id"]}
BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}


def keyed(key, order_id="1"):
    return event(order_id, metadata={"partition_compaction_key": key})


def test_consumers_do_not_see_deletions(client, create, name):
    """Reference timelines#deletions."""
    create(name, **COMPACTED)
    for path, key in (("events", "a"), ("deleted-events", "a"), ("events", "b")):
        response = client.post(f"/event-types/{name}/{path}", json=[keyed(key)])
        assert (response.status_code, response.content) == (200, b"")
    with open_stream(client, f"/event-types/{name}/events?stream_limit=2", headers=BEGIN) as stream:
        seen = [each["metadata"]["partition_compaction_key"] for each in stream.events(2)]
    assert seen == ["a", "b"]
    newest = client.get(f"/event-types/{name}/partitions/0").json()["newest_available_offset"]
    assert newest == "001-0001-000000000000000002"


def test_a_deletion_needs_its_key_and_partition_fields_but_no_valid_event(client, create, name):
    create(name, **COMPACTED, **partitions(3))
    path = f"/event-types/{name}/deleted-events"
    assert client.post(path, json=[{"order_id": 1, "metadata": {"partition_compaction_key": "a"}}]).status_code == 200
    for deletion, step, detail in (
        ({"order_id": "1"}, "validating", "#: required key [metadata] not found"),
        (event(), "validating", "#/metadata: required key [partition_compaction_key] not found"),
        ({"metadata": {"partition_compaction_key": "a"}}, "partitioning", "field order_id doesn't exist."),
    ):
        response = client.post(path, json=[deletion])
        assert response.status_code == 422
        (result,) = response.json()
        assert (result["publishing_status"], result["step"], result["detail"]) == ("failed", step, detail)


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({}, "non compacted event type"),
        (
            {"cleanup_policy": "compact", **partitions(2)},
            "Events of partition strategy 'random' can't be deleted",
        ),
    ],
)
def test_for_an_unsuitable_event_type_every_result_gives_the_reason(client, create, name, changes, detail):
    """Reference publishing#deletable-events."""
    create(name, **changes)
    deletions = [keyed("a"), {}]
    response = client.post(f"/event-types/{name}/deleted-events", json=deletions)
    assert response.status_code == 422
    first, second = response.json()
    assert first.pop("eid") == deletions[0]["metadata"]["eid"]
    assert first == second
    assert detail in first.pop("detail")
    assert first == {"publishing_status": "aborted", "step": "none", "partition": None}
    problem(client.post(f"/event-types/{name}/deleted-events", json=[]), 422, detail)


def test_an_empty_deletion_is_accepted(client, create, name):
    create(name, **COMPACTED)
    assert client.post(f"/event-types/{name}/deleted-events", json=[]).status_code == 200


def test_deletions_are_counted(client, server, create, name):
    create(name, **COMPACTED)
    client.post(f"/event-types/{name}/deleted-events", json=[keyed("a"), keyed("b")])
    assert server.metric(f'rioni_deleted_events_total{{event_type="{name}"}}') == 2
