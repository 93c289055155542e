"""Events that streams skip; reference publishing#delete-events, publishing#consumer-tag.

Source: reference low-level-streams#flushing, streams#hidden-events.
"""

import uuid

import pytest

from tests.acceptance.conftest import event
from tests.support.server import open_stream
from tests.support.waiting import wait_until


pytestmark = pytest.mark.both_modes


BEGIN = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}


def publish(client, name, *order_ids, subscription_id=None):
    headers = {"X-CONSUMER-TAG": f"consumer_subscription_id={subscription_id}"} if subscription_id else {}
    events = [event(each, metadata={"partition_compaction_key": each}) for each in order_ids]
    assert client.post(f"/event-types/{name}/events", json=events, headers=headers).status_code == 200


def delete(client, name, *order_ids):
    events = [{"metadata": {"partition_compaction_key": each}} for each in order_ids]
    response = client.post(f"/event-types/{name}/deleted-events", json=events)
    assert response.status_code == 200, response.text


def lag(client, subscription_id):
    items = client.get(f"/subscriptions/{subscription_id}/stats").json()["items"]
    return sum(partition.get("unconsumed_events", 0) for item in items for partition in item["partitions"])


def cursor(client, subscription_id):
    (item,) = client.get(f"/subscriptions/{subscription_id}/cursors").json()["items"]
    return item["offset"]


def order_ids(batches):
    return [each["order_id"] for batch in batches for each in batch.get("events", [])]


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_a_low_level_stream_shows_neither_deleted_nor_foreign_events(client, create, subscribe, name, encoding):
    """Reference low-level-streams#skipped-events."""
    create(name, cleanup_policy="compact")
    tagged = subscribe(name, read_from="begin")
    publish(client, name, "1", "2")
    delete(client, name, "1")
    publish(client, name, "3", subscription_id=tagged)
    publish(client, name, "4")
    delete(client, name, "2", "4")
    path = f"/event-types/{name}/events?batch_limit=3&stream_limit=3"
    with open_stream(client, path, headers=BEGIN | {"Accept-Encoding": encoding}) as stream:
        (batch,) = stream.batches()
    assert order_ids([batch]) == ["1", "2", "4"]
    assert batch["cursor"]["offset"] == "001-0001-000000000000000004"


def test_hidden_events_are_committed_automatically(client, server, create, subscribe, name):
    create(name, cleanup_policy="compact")
    one, another = (subscribe(name, read_from="begin") for _ in range(2))
    delete(client, name, "0")
    publish(client, name, "1", subscription_id=one)
    publish(client, name, "2", subscription_id=another)
    publish(client, name, "3")
    delete(client, name, "1", "2")
    seen = {}
    for subscription_id, ahead in ((one, 1), (another, 2)):
        path = f"/subscriptions/{subscription_id}/events?batch_limit=2&batch_flush_timeout=1"
        with server.client() as other, open_stream(other, path) as stream:
            batch = stream.filled_batch()
            seen[subscription_id] = order_ids([batch])
            # Hidden events before a visible one are committed at once, those behind it once the client has committed.
            wait_until(lambda read=subscription_id, ahead=ahead: lag(client, read) == 6 - ahead)
            answer = client.post(
                f"/subscriptions/{subscription_id}/cursors",
                json={"items": [batch["cursor"]]},
                headers={"X-Nakadi-StreamId": stream.stream_id},
            )
            assert answer.status_code == 204
        wait_until(lambda read=subscription_id: lag(client, read) == 0)
    assert seen == {one: ["1", "3"], another: ["2", "3"]}


def test_a_stream_of_hidden_events_only_leaves_no_lag(client, server, create, subscribe, name):
    """Reference streams#autocommit."""
    create(name, cleanup_policy="compact")
    subscription_id = subscribe(name, read_from="begin")
    for _ in range(3):
        publish(client, name, *map(str, range(50)), subscription_id=str(uuid.uuid4()))
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1&stream_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        assert order_ids(stream.batches()) == []
    assert cursor(client, subscription_id) == "001-0001-000000000000000149"
    assert lag(client, subscription_id) == 0
