"""Streaming a subscription and committing its cursors: reference streams#checks."""

import contextlib
import json
import os
import signal
import threading
import time
import uuid

import httpx
import pytest

from tests.acceptance.conftest import event, partitions, problem, publish_orders
from tests.support.server import Stream, open_stream
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.both_modes


def commit(client, subscription_id, stream_id, *cursors):
    return client.post(
        f"/subscriptions/{subscription_id}/cursors",
        json={"items": list(cursors)},
        headers={"X-Nakadi-StreamId": stream_id},
    )


def assigned(client, subscription_id):
    """The partitions with the streams that own them."""
    items = client.get(f"/subscriptions/{subscription_id}/stats").json()["items"]
    return {
        (item["event_type"], each["partition"]): each["stream_id"]
        for item in items
        for each in item["partitions"]
        if each["state"] == "assigned"
    }


def test_events_are_streamed_committed_and_not_sent_again(client, server, create, subscribe, name):
    create(name)
    publish_orders(client, name, "1", "2", "3")
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_limit=2&batch_flush_timeout=1&stream_limit=3"
    with server.client() as other, other.stream("GET", path) as response:
        assert response.headers["content-type"] == "application/x-json-stream"
        stream_id = response.headers["x-nakadi-streamid"]
        assert str(uuid.UUID(stream_id)) == stream_id
        stream = Stream(response)
        line = stream.line()
        first = json.loads(line)
        assert line.startswith('{"cursor":{"partition":"0","offset":"001-0001-000000000000000001","event_type":')
        assert line.endswith('"info":{"debug":"Stream started"}}')
        assert [each["order_id"] for each in first["events"]] == ["1", "2"]
        second = stream.batch()
        assert [each["order_id"] for each in second["events"]] == ["3"]
        assert first["cursor"]["cursor_token"] != second["cursor"]["cursor_token"]
        answer = commit(client, subscription_id, stream_id, first["cursor"], second["cursor"])
        assert (answer.status_code, answer.content) == (204, b"")
        last = stream.batch()
        assert last["info"]["debug"] == "Stream limit in events reached: 3"
        assert stream.batches() == []
    (cursor,) = client.get(f"/subscriptions/{subscription_id}/cursors").json()["items"]
    assert (cursor["event_type"], cursor["partition"]) == (name, "0")
    assert cursor["offset"] == "001-0001-000000000000000002"
    publish_orders(client, name, "4")
    with server.client() as other, open_stream(other, path) as stream:
        assert stream.events(1)[0]["order_id"] == "4"


def test_uncommitted_events_are_delivered_again(client, server, create, subscribe, name):
    """Reference streams#final-batch, cursors#delivery."""
    create(name)
    publish_orders(client, name, "1", "2")
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_limit=1&batch_flush_timeout=1&commit_timeout=1"
    for _ in range(2):
        with server.client() as other, open_stream(other, path) as stream:
            assert stream.events(1)[0]["order_id"] == "1"
        wait_until(lambda: not assigned(client, subscription_id))


def test_a_stream_waits_for_commits_beyond_its_window(client, server, create, subscribe, name):
    create(name)
    publish_orders(client, name, *map(str, range(10)))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_limit=2&max_uncommitted_events=4&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        batches = [stream.filled_batch(), stream.filled_batch()]
        assert [len(batch["events"]) for batch in batches] == [2, 2]
        assert "events" not in stream.batch()
        assert commit(client, subscription_id, stream.stream_id, batches[0]["cursor"]).status_code == 204
        assert [each["order_id"] for each in stream.events(2)] == ["4", "5"]


def test_without_a_commit_in_time_the_stream_ends(client, server, create, subscribe, name):
    """Reference streams#commit-timeout."""
    create(name)
    publish_orders(client, name, "1")
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?commit_timeout=1&batch_flush_timeout=5"
    with server.client() as other, open_stream(other, path) as stream:
        batches = stream.batches()
    assert len(batches[0]["events"]) == 1
    assert batches[-1]["info"]["debug"].startswith("Commit timeout reached")


def test_an_idle_stream_is_kept_alive_and_ends_at_its_timeout(client, server, create, subscribe, name):
    """Reference streams#keep-alives, streams#end-reasons."""
    create(name)
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1&stream_timeout=2"
    with server.client() as other, open_stream(other, path) as stream:
        batches = stream.batches()
    assert batches[0]["info"] == {"debug": "Stream started"}
    assert batches[0]["cursor"]["offset"] == "001-0001--1"
    assert batches[-1]["info"] == {"debug": "Stream timeout reached"}
    assert all("events" not in batch for batch in batches)


def test_events_arrive_without_polling_delay_from_any_worker(client, server, create, subscribe, name):
    create(name)
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?max_uncommitted_events=100"
    with server.client() as other, open_stream(other, path) as stream:
        times = []
        for number in range(20):
            with server.client() as publisher:
                begin = time.monotonic()
                publish_orders(publisher, name, str(number))
                assert stream.events(1)[0]["order_id"] == str(number)
                times.append(time.monotonic() - begin)
    assert len(times) == 20


def test_parameters_may_be_given_in_the_body(client, server, create, subscribe, name):
    create(name)
    publish_orders(client, name, "1", "2")
    subscription_id = subscribe(name, read_from="begin")
    body = {"batch_limit": 2, "batch_flush_timeout": 1, "stream_limit": 2}
    path = f"/subscriptions/{subscription_id}/events"
    with server.client() as other, open_stream(other, path, "POST", json=body) as stream:
        assert len(stream.filled_batch()["events"]) == 2


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("batch_limit=0", "batch_limit can't be lower than 1"),
        ("commit_timeout=61", "commit_timeout can not be more than 60"),
        ("commit_timeout=-1", "commit_timeout can not be less than 0"),
        ("max_uncommitted_events=0", "max_uncommitted_events"),
        ("batch_limit=5&stream_limit=2", "stream_limit"),
    ],
)
def test_parameters_have_limits(client, create, subscribe, name, query, detail):
    create(name)
    problem(client.get(f"/subscriptions/{subscribe(name)}/events?{query}"), 422, detail)


def test_a_parameter_must_be_a_number(client, create, subscribe, name):
    create(name)
    path = f"/subscriptions/{subscribe(name)}/events"
    problem(client.get(f"{path}?batch_limit=x"), 400)
    problem(client.post(path, content=b"x"), 400)
    problem(client.post(path, json={"batch_limit": "x"}), 400)


def test_there_are_no_more_streams_than_partitions(client, server, create, subscribe, name):
    """Reference streams#slots."""
    create(name)
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path):
        problem(
            client.get(path),
            409,
            f"No free slots for streaming available for subscription {subscription_id}. Total slots: 1",
        )


def test_partitions_are_shared_and_handed_over(client, server, create, subscribe, name):
    """Reference streams#assignment."""
    create(name, partition_strategy="user_defined", **partitions(4))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1&max_uncommitted_events=100"
    with contextlib.ExitStack() as stack:
        streams = []
        for expected in ({4}, {2}, {1, 2}):
            stream = stack.enter_context(open_stream(stack.enter_context(server.client()), path))
            streams.append(stream)
            ids = {each.stream_id for each in streams}

            def balanced(ids=ids, expected=expected):
                owners = list(assigned(client, subscription_id).values())
                return len(owners) == 4 and set(owners) == ids and {owners.count(each) for each in ids} == expected

            wait_until(balanced)
        publish_to = [str(number) for number in range(4)]
        for partition in publish_to:
            publish_orders(client, name, partition, metadata={"partition": partition})
        owners = assigned(client, subscription_id)
        for stream in streams:
            mine = sorted(partition for (_, partition), owner in owners.items() if owner == stream.stream_id)
            assert sorted(each["order_id"] for each in stream.events(len(mine))) == mine


def test_a_disconnected_client_releases_its_partitions(client, server, create, subscribe, name):
    create(name, **partitions(2))
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=30"
    with server.client() as other, open_stream(other, path) as stayed:
        with server.client() as leaving, open_stream(leaving, path) as left:
            wait_until(lambda: set(assigned(client, subscription_id).values()) == {stayed.stream_id, left.stream_id})
        wait_until(lambda: list(assigned(client, subscription_id).values()) == [stayed.stream_id] * 2)


def test_the_streams_of_a_killed_worker_are_taken_over(client, server, create, subscribe, name):
    """Reference operations#worker-death."""
    create(name, **partitions(2))
    publish_orders(client, name, *map(str, range(20)))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=1&max_uncommitted_events=100"
    with server.client() as other, open_stream(other, path) as stream:
        assert stream.events(20)
        killed = server.workers()
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        rest = []
        with pytest.raises(httpx.RemoteProtocolError):
            rest.extend(stream.batches_as_they_come())
        assert not [batch for batch in rest if "info" in batch]
    wait_until(lambda: len(set(server.workers()) - set(killed)) == 2)
    with server.client() as other, open_stream(other, path) as stream:
        assert sorted(int(each["order_id"]) for each in stream.events(20)) == list(range(20))


def test_requested_partitions_are_honoured(client, server, create, subscribe, name):
    """Reference streams#direct-streams."""
    create(name, partition_strategy="user_defined", **partitions(2))
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events"
    body = {"partitions": [{"event_type": name, "partition": "1"}], "batch_flush_timeout": 1}
    with server.client() as other, open_stream(other, path, "POST", json=body) as stream:
        wait_until(lambda: assigned(client, subscription_id) == {(name, "1"): stream.stream_id})
        problem(client.post(path, json=body), 409, "already requested by other stream(s)")
        stats = client.get(f"/subscriptions/{subscription_id}/stats").json()["items"][0]["partitions"]
        assert [each.get("assignment_type") for each in stats] == [None, "direct"]
    twice = {"partitions": body["partitions"] * 2}
    problem(client.post(path, json=twice), 422, "Duplicated partition specified")
    foreign = {"partitions": [{"event_type": name, "partition": "9"}]}
    problem(client.post(path, json=foreign), 422, "Wrong partitions specified")


def test_a_deleted_subscription_ends_its_streams_with_a_reason(client, server, create, subscribe, name):
    """Reference subscriptions#deletion."""
    create(name)
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=30"
    with server.client() as other, open_stream(other, path) as stream:
        wait_until(lambda: assigned(client, subscription_id))
        client.delete(f"/subscriptions/{subscription_id}")
        assert "deleted" in stream.batches()[-1]["info"]["debug"]


def test_a_blocked_consumer_ends_its_streams_with_a_reason(client, server, create, subscribe, name):
    create(name)
    subscription_id = subscribe(name)
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=30"
    with server.client() as other, open_stream(other, path) as stream:
        wait_until(lambda: assigned(client, subscription_id))
        client.put(f"/settings/blacklist/CONSUMER_ET/{name}")
        assert stream.batches()[-1]["info"] == {"debug": "Consumption is blocked"}
    problem(client.get(path), 403, "Application or event type is blocked")


def test_two_event_types_are_read_through_one_subscription(client, server, create, subscribe, name):
    create(f"{name}.a")
    create(f"{name}.b")
    publish_orders(client, f"{name}.a", "a")
    publish_orders(client, f"{name}.b", "b")
    subscription_id = subscribe(f"{name}.a", f"{name}.b", read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_limit=1&batch_flush_timeout=1"
    with server.client() as other, open_stream(other, path) as stream:
        assert sorted(each["order_id"] for each in stream.events(2)) == ["a", "b"]


def test_many_consumers_receive_everything_in_order(client, server, create, subscribe, name):
    """Reference cursors#ordering, cursors#key-order, cursors#delivery."""
    create(name, partition_strategy="hash", partition_key_fields=["order_id"], **partitions(8))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_limit=20&batch_flush_timeout=1&max_uncommitted_events=200"
    total, keys = 4_000, 40
    seen, lock, done = {}, threading.Lock(), threading.Event()

    def consume():
        with server.client() as mine, server.client() as committer, open_stream(mine, path) as stream:
            while not done.is_set():
                batch = stream.batch()
                with lock:
                    for each in batch.get("events", []):
                        numbers = seen.setdefault(each["order_id"], [])
                        if not numbers or each["number"] > numbers[-1]:
                            numbers.append(each["number"])
                    if sum(map(len, seen.values())) == total:
                        done.set()
                if "events" in batch:
                    commit(committer, subscription_id, stream.stream_id, batch["cursor"])

    consumers = [threading.Thread(target=consume) for _ in range(3)]
    for consumer in consumers:
        consumer.start()
    for start in range(0, total, 100):
        events = [event(f"key-{number % keys}", number=number) for number in range(start, start + 100)]
        assert client.post(f"/event-types/{name}/events", json=events).status_code == 200
    assert done.wait(WAIT_S)
    for consumer in consumers:
        consumer.join(WAIT_S)
    assert all(numbers == list(range(numbers[0], total, keys)) for numbers in seen.values())
