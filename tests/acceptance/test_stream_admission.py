"""Admission of a subscription's streams, and the effect of a reset on them.

Source: reference streams#checks, subscriptions#reset.
"""

import contextlib
import threading
import uuid

import pytest

from tests.acceptance.conftest import partitions, problem, publish_orders, rows
from tests.acceptance.test_subscription_stream import assigned, commit
from tests.support.server import open_stream
from tests.support.waiting import wait_until


@pytest.fixture
def path(create, subscribe, name):
    """The path of the streams of a subscription to an event type of two partitions."""
    create(name, partition_strategy="user_defined", **partitions(2))
    return f"/subscriptions/{subscribe(name, read_from='begin')}/events"


def requesting(name, *wanted):
    """The body of a stream that requests these partitions; without any, the unrequested ones."""
    return {"partitions": [{"event_type": name, "partition": each} for each in wanted]}


@pytest.mark.parametrize(
    ("there", "wanted", "detail"),
    rows(
        ("automatic: a slot for each partition", ["", ""], "", "No free slots for streaming available"),
        ("automatic: one is free", [""], "", None),
        ("automatic: requested ones are no slots", ["", "0"], "", "No free slots for streaming available"),
        ("automatic: all are requested", ["01"], "", "No free slots for streaming available"),
        ("direct: not requested yet", ["1"], "0", None),
        ("direct: requested already", ["1"], "01", "EventTypePartition{{eventType='{0}', partition='1'}}"),
        ("direct: automatic streams don't count", ["", ""], "0", None),
        ("direct: all partitions, beside automatic ones", ["", ""], "01", None),
    ),
)
def test_streams_are_admitted_while_slots_are_free(client, server, path, name, there, wanted, detail):
    """Reference streams#slots, streams#direct-streams."""
    with contextlib.ExitStack() as stack:
        for each in there:
            stack.enter_context(
                open_stream(stack.enter_context(server.client()), path, "POST", json=requesting(name, *each))
            )
        if detail is not None:
            found = problem(client.post(path, json=requesting(name, *wanted)), 409, detail.format(name))
            if not wanted:
                assert found["detail"].endswith(f"for subscription {path.split('/')[2]}. Total slots: 2")
            else:
                assert found["detail"].startswith("The following partitions are already requested by other stream(s)")
            return
        stream = stack.enter_context(open_stream(client, path, "POST", json=requesting(name, *wanted)))
        assert str(uuid.UUID(stream.stream_id)) == stream.stream_id
        expected = set(wanted) if wanted else {"0"}

        def owns_expected():
            owned = assigned(stack.enter_context(server.client()), path.split("/")[2])
            mine = {partition for (_, partition), owner in owned.items() if owner == stream.stream_id}
            return mine == expected if wanted else len(mine) == 1

        wait_until(owns_expected)


def test_the_first_stream_initialises_the_subscription(client, server, path, name):
    """Reference streams#checks, subscriptions#initialisation; headers come at once, without any data."""
    subscription = path.removesuffix("/events")
    assert client.get(f"{subscription}/cursors").json() == {"items": []}
    with server.client() as other, open_stream(other, f"{path}?batch_flush_timeout=30"):
        items = client.get(f"{subscription}/cursors").json()["items"]
    assert [(item["event_type"], item["partition"], item["offset"]) for item in items] == [
        (name, "0", "001-0001--1"),
        (name, "1", "001-0001--1"),
    ]


def test_a_reset_waits_for_outstanding_commits_and_admits_no_other_stream(client, server, path, name):
    """Reference subscriptions#reset, streams#closing, subscriptions#reset-effects, subscriptions#reset-checks."""
    publish_orders(client, name, "a", "b", metadata={"partition": "0"})
    publish_orders(client, name, "c", metadata={"partition": "1"})
    subscription_id = path.split("/")[2]
    cursors = f"/subscriptions/{subscription_id}/cursors"
    items = [{"event_type": name, "partition": "0", "offset": "001-0001-000000000000000000", "cursor_token": "x"}]
    answers = []

    def reset():
        with server.client() as other:
            answers.append(other.patch(cursors, json={"items": items}))

    with server.client() as other, open_stream(other, f"{path}?batch_flush_timeout=1") as stream:
        sent = [stream.batch()["cursor"] for _ in range(3)]
        resetting = threading.Thread(target=reset)
        resetting.start()
        rest = stream.batches_as_they_come()
        assert any(batch.get("info") == {"debug": "Resetting subscription cursors"} for batch in rest)
        # Closing: no other stream is admitted, and what was sent can be committed.
        problem(client.patch(cursors, json={"items": items}), 409, "Cursors reset is already in progress for provided")
        problem(client.get(path), 409, "Resetting subscription cursors")
        assert not answers
        assert commit(client, subscription_id, stream.stream_id, *sent).status_code == 204
        assert next(rest, None) is None
        resetting.join()
    assert answers[0].status_code == 204
    left = {item["partition"]: item["offset"] for item in client.get(cursors).json()["items"]}
    # Partition 1 was not part of the reset: its committed cursor is unchanged.
    assert left == {"0": "001-0001-000000000000000000", "1": "001-0001-000000000000000000"}
    with open_stream(client, path) as stream:
        assert stream.events(1)[0]["order_id"] == "b"


def test_sent_events_can_be_committed_after_the_client_has_disconnected(client, server, path, name):
    """Reference streams#commit-timeout; then the partitions are free at once.

    Source: reference streams#disconnected-clients, subscriptions#ownership.
    """
    publish_orders(client, name, "a", metadata={"partition": "0"})
    subscription_id = path.split("/")[2]
    with server.client() as other, open_stream(other, f"{path}?batch_flush_timeout=30") as stream:
        cursor = stream.filled_batch()["cursor"]
    assert commit(client, subscription_id, stream.stream_id, cursor).status_code == 204
    wait_until(lambda: not assigned(client, subscription_id))
    problem(
        commit(client, subscription_id, stream.stream_id, cursor), 422, f"Session with stream id {stream.stream_id}"
    )


def test_a_partition_that_is_handed_over_shows_both_streams_and_is_delivered_again(client, server, path, name):
    """Uncommitted events are delivered again, by the new owner.

    Source: reference subscriptions#partition-statistics, streams#hand-over.
    """
    publish_orders(client, name, "a", metadata={"partition": "0"})
    publish_orders(client, name, "b", metadata={"partition": "1"})
    subscription_id = path.split("/")[2]

    def states():
        (item,) = client.get(f"/subscriptions/{subscription_id}/stats").json()["items"]
        return {each["partition"]: (each["state"], each["stream_id"]) for each in item["partitions"]}

    query = "?batch_limit=1&batch_flush_timeout=1&commit_timeout=4"
    with server.client() as one, open_stream(one, path + query) as old:
        cursors = {batch["cursor"]["partition"]: batch["cursor"] for batch in (old.filled_batch(), old.filled_batch())}
        assert commit(client, subscription_id, old.stream_id, cursors["0"]).status_code == 204
        with server.client() as two, open_stream(two, path, "POST", json=requesting(name, "1")) as new:
            assert states() == {"0": ("assigned", old.stream_id), "1": ("reassigning", old.stream_id)}
            problem(
                commit(client, subscription_id, new.stream_id, cursors["1"]), 422, "cannot be committed with stream"
            )
            assert new.events(1)[0]["order_id"] == "b"
            assert states() == {"0": ("assigned", old.stream_id), "1": ("assigned", new.stream_id)}
            assert "events" not in old.batch()
