"""Slow clients: headers, bodies and streams that trickle (hostile input, H3).

Source: reference operations#deadlines.
"""

import contextlib
import socket
import time
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import event, problem, publish_orders
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


DRIP_S = 0.1
DRIPS_MAX = 150


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    """A server with short deadlines, and an event type."""
    environment = {"RIONI_HEADER_TIMEOUT_S": "1", "RIONI_BODY_TIMEOUT_S": "1", "RIONI_BODY_BYTES_PER_S_MIN": "200"}
    environment["RIONI_STREAMS_PER_PARTITION_MAX"] = "1"
    data = tmp_path_factory.mktemp("data") / "rioni"
    with running_server(data, "--workers", "1", environment=environment) as running:
        with running.client() as client:
            client.post("/event-types", json=event_type_body(name="test.slow"))
        yield running


def drip(server, head, byte=b"x"):
    """Send a beginning and then one byte after the other, until the server closes the connection; return its answer."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=DRIP_S) as connection:
        connection.sendall(head)
        for _ in range(DRIPS_MAX):
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(byte)
            try:
                return _all_of(connection)
            except TimeoutError:
                continue
            except ConnectionResetError:
                return b""
    raise AssertionError("the server waits for ever")


def _all_of(connection):
    """Return all that the server sends before it closes the connection, or resets it as a byte arrives just then."""
    said = connection.recv(65_536)
    connection.settimeout(30)
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65_536):
            said += piece
    return said


POST = b"POST /event-types/test.slow/events HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize("head", [b"GET /health HTTP/1.1\r\nX: ", b"G"], ids=["in a header", "in the request line"])
def test_headers_that_trickle_in_end_the_connection(impatient, head):
    """Reference operations#client-deadlines."""
    assert drip(impatient, head) == b""


@pytest.mark.parametrize(
    ("headers", "byte"),
    [(b"Content-Length: 1000000\r\n\r\n[", b" "), (b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n")],
    ids=["of a stated length", "in chunks"],
)
def test_a_body_that_trickles_in_is_answered_and_its_connection_closed(impatient, headers, byte):
    """Reference operations#client-deadlines."""
    answer = drip(impatient, POST + headers, byte)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Timed out reading the request body" in answer
    assert b"\r\nConnection: close\r\n" in answer


def test_a_large_body_may_take_longer_than_a_small_one(impatient):
    """It takes about two seconds, more than the minimum of one second for a body.

    Source: reference operations#client-deadlines.
    """
    body = b"[%s]" % b",".join([b" " * 500] * 20)
    parts = urlsplit(impatient.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=DRIP_S) as connection:
        connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body) - 500, 500):
            connection.sendall(body[start : start + 500])
            with contextlib.suppress(TimeoutError):
                assert not connection.recv(1), "the server has had enough"
        connection.sendall(body[start + 500 :])
        connection.settimeout(30)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 ")


def test_a_body_rejected_unread_may_be_slow_and_another_request_may_follow(impatient):
    """It takes about two seconds, more than the one second allowed for headers."""
    parts = urlsplit(impatient.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as connection:
        head = b"POST /event-types/test.unknown/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
        connection.sendall(head)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 404 ")
        for _ in range(20):
            connection.sendall(b" " * 5_000)
            time.sleep(DRIP_S)
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert _all_of(connection).startswith(b"HTTP/1.1 200 ")


def test_the_answer_to_a_body_that_is_much_too_large_is_not_lost(impatient):
    parts = urlsplit(impatient.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as connection:
        connection.sendall(POST + b"Connection: close\r\nContent-Length: 60000000\r\n\r\n")
        for _ in range(60):
            connection.sendall(b" " * 1_000_000)
        assert _all_of(connection).startswith(b"HTTP/1.1 413 ")


def test_a_stream_whose_client_reads_nothing_is_cut_off_and_its_slot_is_free(impatient):
    """The pending output is longer than the buffers of the server and of the client.

    Source: reference low-level-streams#slow-clients.
    """
    parts = urlsplit(impatient.url)
    path, cursors = "/event-types/test.unread/events", '[{"partition":"0","offset":"BEGIN"}]'
    with impatient.client(headers={"X-Nakadi-Cursors": cursors}) as client:
        client.post("/event-types", json=event_type_body(name="test.unread"))
        publish_orders(client, "test.unread", *["x" * 900_000] * 10)
        with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as stalled:
            stalled.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Nakadi-Cursors: {cursors}\r\n\r\n".encode())
            said = stalled.recv(1_000)
            assert said.startswith(b"HTTP/1.1 200 ")
            path += "?stream_limit=1"
            problem(client.get(path), 429, "test.unread, partition(s): 0; max limit is 1 connections")
            wait_until(lambda: client.get(path).status_code == 200)
            said += _all_of(stalled)
    assert b'"info"' not in said
    assert not said.endswith(b"\r\n"), "it breaks off within a batch"


def test_the_server_serves_other_clients_meanwhile_and_afterwards(impatient):
    parts = urlsplit(impatient.url)
    workers = impatient.workers()
    with contextlib.ExitStack() as stack, impatient.client() as client:
        for _ in range(200):
            slow = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
            slow.sendall(POST + b"Content-Length: 9\r\n\r\n[")
        assert client.post("/event-types/test.slow/events", json=[event()]).status_code == 200
        assert client.get("/health").text == "OK"
    assert impatient.workers() == workers
