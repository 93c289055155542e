"""The limits of streams, and closing them from outside.

Source: reference low-level-streams#connection-limits, streams#checks, operations#stream-limits,
streams#closing-a-stream, operations#slots.
"""

import contextlib
import os
import signal
import socket
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import event, partitions, problem, publish_orders
from tests.acceptance.test_subscription_stream import assigned, commit
from tests.support.builders import event_type_body
from tests.support.server import open_stream, running_server
from tests.support.waiting import wait_until


FEW = 4


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A server with two workers that allows a client few streams, two of them of one partition."""
    environment = {"RIONI_STREAMS_PER_CLIENT_MAX": str(FEW), "RIONI_STREAMS_PER_PARTITION_MAX": "2"}
    with running_server(
        tmp_path_factory.mktemp("data") / "rioni", "--workers", "2", environment=environment
    ) as running:
        with running.client() as client:
            body = event_type_body(name="test.few", partition_strategy="user_defined", **partitions(3))
            assert client.post("/event-types", json=body).status_code == 201
        yield running


LOW_LEVEL = "/event-types/test.few/events?batch_flush_timeout=30"
ONE = {"X-Nakadi-Cursors": '[{"partition":"0","offset":"BEGIN"}]'}
TWO = {"X-Nakadi-Cursors": '[{"partition":"2","offset":"BEGIN"},{"partition":"0","offset":"BEGIN"}]'}
FULL = (
    "You exceeded the maximum number of simultaneous connections to a single partition for event type: test.few, "
    "partition(s): 0; max limit is 2 connections per client"
)


def opened(server, stack, path, **options):
    """Open a stream as soon as the server admits it: it may take a second to notice that others were closed."""
    client = stack.enter_context(server.client())

    def try_it():
        response = stack.enter_context(client.stream("GET", path, **options))
        return response.status_code == 200

    wait_until(try_it)


def wait_until_rejected(client, headers, detail):
    """Wait until streams left open by others are closed, and a stream is rejected because of this test's streams."""
    wait_until(lambda: detail in problem(client.get(LOW_LEVEL, headers=headers), 429)["detail"])


def test_low_level_slots_are_counted_over_all_workers_and_free_when_closed(limited):
    """A connection goes to a random worker: with separate counts each worker would admit two.

    Source: reference operations#slot-counts, operations#slot-release.
    """
    for _ in range(2):
        with contextlib.ExitStack() as stack, limited.client() as client:
            opened(limited, stack, LOW_LEVEL, headers=ONE)
            opened(limited, stack, LOW_LEVEL, headers=TWO)
            wait_until_rejected(client, TWO, FULL)
            for _ in range(5):
                problem(client.get(LOW_LEVEL, headers=TWO), 429, FULL)


def test_all_full_partitions_are_named_and_no_slot_of_others_is_taken(limited):
    """Reference low-level-streams#connection-limits; the limits of the parameters come first (4.1).

    Source: reference operations#slot-counts.
    """
    one = {"X-Nakadi-Cursors": '[{"partition":"1","offset":"BEGIN"}]'}
    some = {"X-Nakadi-Cursors": '[{"partition":"1","offset":"BEGIN"},{"partition":"0","offset":"BEGIN"}]'}
    with contextlib.ExitStack() as stack, limited.client() as client:
        for _ in range(2):
            opened(limited, stack, LOW_LEVEL, headers=TWO)
        wait_until_rejected(client, TWO, "partition(s): 2,0; max limit is 2 connections per client")
        problem(client.get(f"{LOW_LEVEL}&batch_limit=0", headers=TWO), 422, "batch_limit can't be lower than 1")
        wait_until_rejected(client, some, "partition(s): 0; max limit is 2 connections per client")
        for _ in range(3):
            problem(client.get(LOW_LEVEL, headers=some), 429, "partition(s): 0; max limit is 2 connections per client")
        for _ in range(2):
            opened(limited, stack, LOW_LEVEL, headers=one)


def test_slots_of_a_killed_worker_are_free(limited):
    """Reference operations#slot-release, operations#worker-death."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            opened(limited, stack, LOW_LEVEL, headers=ONE)
        killed = limited.workers()
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: len(set(limited.workers()) - set(killed)) == 2)
        for _ in range(2):
            opened(limited, stack, LOW_LEVEL, headers=ONE)


def test_the_streams_of_both_kinds_of_a_client_are_limited_together(limited):
    """Reference operations#slot-counts."""
    with limited.client() as client, contextlib.ExitStack() as stack:
        body = {"owning_application": "few", "event_types": ["test.few"]}
        path = f"/subscriptions/{client.post('/subscriptions', json=body).json()['id']}/events"
        for _ in range(2):
            opened(limited, stack, LOW_LEVEL, headers=ONE)
        for _ in range(FEW - 2):
            opened(limited, stack, path)
        text = f"You exceeded the maximum number of simultaneous streams; max limit is {FEW} per client"
        problem(client.get(path), 429, text)
        problem(client.get(LOW_LEVEL, headers=TWO), 429, text)
        stack.close()
        opened(limited, stack, path)


# --- closing a stream from outside ---


def test_a_stream_closed_from_outside_ends_with_a_reason_and_its_slot_is_free_at_once(
    client, server, create, subscribe, name
):
    create(name)
    publish_orders(client, name, "1")
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events?batch_flush_timeout=30"
    with server.client() as other, open_stream(other, path) as stream:
        cursor = stream.filled_batch()["cursor"]
        assert client.delete(f"/subscriptions/{subscription_id}/streams/{stream.stream_id}").status_code == 204
        with server.client() as third, open_stream(third, path) as following:
            assert following.events(1)[0]["order_id"] == "1"
        assert [batch["info"]["debug"] for batch in stream.batches()] == ["Session ended"]
        problem(commit(client, subscription_id, stream.stream_id, cursor), 422, "not found")
    problem(client.delete(f"/subscriptions/{subscription_id}/streams/{stream.stream_id}"), 404, "not found")
    problem(client.delete(f"/subscriptions/{subscription_id}/streams/x"), 404, "Session with stream id x not found")


# --- clients that reconnect, and clients that stop reading ---


def test_a_client_that_reconnects_at_once_gets_the_slot_of_its_closed_connection(
    client, server, create, subscribe, name
):
    """The closed connection is noticed within a second: the request waits for that, and is not rejected.

    Source: reference streams#slots.
    """
    create(name)
    path = f"/subscriptions/{subscribe(name)}/events?batch_flush_timeout=30"
    for _ in range(3):
        with server.client() as other, open_stream(other, path) as stream:
            assert stream.stream_id


def test_a_client_that_stops_reading_is_disconnected_and_holds_no_slot(client, server, create, subscribe, name):
    """The pending output is longer than the buffers of the server and of the client.

    Source: reference streams#slow-clients.
    """
    create(name)
    for _ in range(40):
        answer = client.post(f"/event-types/{name}/events", json=[event("x" * 200_000) for _ in range(2)])
        assert answer.status_code == 200, answer.text
    subscription_id = subscribe(name, read_from="begin")
    query = "batch_limit=1&max_uncommitted_events=1000&batch_flush_timeout=1&commit_timeout=1"
    path = f"/subscriptions/{subscription_id}/events?{query}"
    parts = urlsplit(server.url)
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect((parts.hostname, parts.port))
        stalled.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: len(assigned(client, subscription_id)) == 1)
        owner = assigned(client, subscription_id)
        wait_until(lambda: assigned(client, subscription_id) != owner)
        with open_stream(client, path) as stream:
            assert stream.events(1)
