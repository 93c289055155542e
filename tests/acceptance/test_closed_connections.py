"""A subscription's stream after its connection is closed (reference streams#disconnected-clients)."""

import contextlib
import json
import socket
import struct
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import partitions, publish_orders
from tests.acceptance.test_subscription_stream import assigned, commit
from tests.support.server import open_stream
from tests.support.waiting import WAIT_S, wait_until


pytestmark = pytest.mark.both_modes

"""Shorter than the commit timeout: what is free by then was not freed by the end of it."""

QUERY = "?batch_limit=1&max_uncommitted_events=2&batch_flush_timeout=60&commit_timeout=60"


def _close(connection: socket.socket) -> None:
    connection.close()


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


class _RawStream:
    """A stream over a bare socket, read only when a test asks for events."""

    def __init__(self, connection: socket.socket, path: str) -> None:
        self.connection = connection
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        self._reader = connection.makefile("rb")
        status = int(self._reader.readline().split()[1])
        assert status == 200, self._reader.read()
        headers = dict(line.decode().lower().strip().split(": ", 1) for line in iter(self._reader.readline, b"\r\n"))
        self.stream_id = headers["x-nakadi-streamid"]

    def events(self, count: int) -> list[str]:
        """The order ids of the next events."""
        found: list[str] = []
        while len(found) < count:
            line = self._reader.readline()
            if line.startswith(b"{"):
                found += [each["order_id"] for each in json.loads(line).get("events", ())]
        return found

    def end(self, how: Callable[[socket.socket], None]) -> None:
        if how is not _half_close:
            self._reader.close()
        how(self.connection)


@contextlib.contextmanager
def raw_stream(server, path: str) -> Iterator[_RawStream]:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as connection:
        yield _RawStream(connection, path)


@pytest.mark.parametrize("how", [_close, _reset, _half_close])
@pytest.mark.parametrize("state", ["idle", "window full", "window full, all slots taken"])
def test_the_next_stream_gets_the_slot_and_the_uncommitted_events(client, server, create, subscribe, name, how, state):
    create(name, partition_strategy="user_defined", **partitions(2))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events{QUERY}"
    sent = [] if state == "idle" else ["a", "b"]
    publish_orders(client, name, *sent, "c", metadata={"partition": "0"}) if sent else None
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(raw_stream(server, path))
        if state == "window full, all slots taken":
            direct = stack.enter_context(server.client())
            body = {"partitions": [{"event_type": name, "partition": "1"}]}
            stack.enter_context(open_stream(direct, path.partition("?")[0], "POST", json=body))
        if sent:
            assert old.events(2) == sent
        old.end(how)
        for _ in range(2):
            with raw_stream(server, path) as new:
                assert not sent or new.events(2) == sent
                new.end(how)
        with server.client() as last, open_stream(last, path) as stream:
            publish_orders(client, name, "d", metadata={"partition": "0"})
            assert [each["order_id"] for each in stream.events(2 if sent else 1)] == (sent or ["d"])


@pytest.mark.parametrize("how", [_close, _reset, _half_close])
def test_a_stream_that_waits_for_partitions_gets_those_of_a_closed_connection(
    client, server, create, subscribe, name, how
):
    """During a rebalance: the events that were sent and not committed go to the stream that waits."""
    create(name, partition_strategy="user_defined", **partitions(2))
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events{QUERY}"
    for partition in ("0", "1"):
        publish_orders(client, name, partition, metadata={"partition": partition})
    with raw_stream(server, path) as old:
        assert sorted(old.events(2)) == ["0", "1"]
        with server.client() as other, open_stream(other, path) as waiting:
            old.end(how)
            assert sorted(each["order_id"] for each in waiting.events(2)) == ["0", "1"]
            wait_until(lambda: set(assigned(client, subscription_id).values()) == {waiting.stream_id})


def test_what_was_sent_can_be_committed_until_another_stream_begins(client, server, create, subscribe, name):
    create(name)
    subscription_id = subscribe(name, read_from="begin")
    path = f"/subscriptions/{subscription_id}/events{QUERY}"
    publish_orders(client, name, "a", "b", "c")

    def cursor(number: int) -> dict:
        offset = f"001-0001-{number:018d}"
        return {"event_type": name, "partition": "0", "offset": offset, "cursor_token": "x"}

    with raw_stream(server, path) as old:
        assert old.events(2) == ["a", "b"]
        old.end(_close)
    assert commit(client, subscription_id, old.stream_id, cursor(0)).status_code == 204
    with raw_stream(server, path) as new:
        assert new.events(2) == ["b", "c"]
        assert commit(client, subscription_id, old.stream_id, cursor(1)).status_code == 422
        assert commit(client, subscription_id, new.stream_id, cursor(2)).status_code == 204
