"""Connections of the clients, with servers that answer in pieces, break off, stall, or talk nonsense."""

import asyncio
import contextlib
import random
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rioni.client._async import connections as for_asyncio
from rioni.client._async.connection import UNREAD_BYTES_MAX
from rioni.client._async.connection import open_connection as open_for_asyncio
from rioni.client._sync import connections as for_threads
from rioni.client._sync.connection import open_connection as open_for_threads
from rioni.client.http11 import HEADERS_BYTES_MAX, INTERIM_MAX
from tests.support.scripted_server import Answer, scripted_server


LONG_S = 60.0
AT_ONCE_S = 0.01
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Server:
    """Answers the requests of each connection with the pieces of a script, and counts connections and requests."""

    def __init__(self, script):
        self.script, self.accepted, self.requests, self.open, self.open_max = script, 0, [], 0, 0
        self.answered = asyncio.Queue()
        """An item for each request whose answer is written, or whose connection is closed."""
        self.done = asyncio.Event()

    async def serve(self, reader, writer):
        self.accepted, self.open = self.accepted + 1, self.open + 1
        self.open_max = max(self.open, self.open_max)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.script(self, reader, writer)
        finally:
            self.open -= 1
            self.done.set()
            writer.transport.abort()

    async def request(self, reader):
        """Read a request."""
        head = await reader.readuntil(b"\r\n\r\n")
        size = next((int(line[16:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
        self.requests.append(head + await reader.readexactly(size))


def answering(*pieces, then=None):
    """A script that answers each request with pieces; with `then` it does that afterwards, once."""

    async def script(server, reader, writer):
        while True:
            await server.request(reader)
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            finally:
                server.answered.put_nowait(None)
            if then is not None:
                return await then(reader, writer)

    return script


async def end(reader, writer):
    """Close the connection in order."""
    writer.close()
    await writer.wait_closed()


async def reset(reader, writer):
    """Close the connection as a process does that is killed with unread data."""
    option = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
    writer.transport.abort()


async def stall(reader, writer):
    """Say nothing more, until the client goes."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


class Threaded(httpx.AsyncBaseTransport):
    """Connections for threads, as if they were for asyncio."""

    def __init__(self, *arguments, **options):
        self._target = for_threads.Connections(*arguments, **options)

    def __getattr__(self, name):
        return getattr(self._target, name)

    async def handle_async_request(self, request):
        response = await asyncio.to_thread(self._target.handle_request, request)
        response.stream = ThreadedBody(response.stream)
        return response

    async def aclose(self):
        await asyncio.to_thread(self._target.close)


class ThreadedBody(httpx.AsyncByteStream):
    def __init__(self, target):
        self._target = target

    async def __aiter__(self):
        while (piece := await asyncio.to_thread(next, self._target, None)) is not None:
            yield piece

    async def aclose(self):
        await asyncio.to_thread(self._target.close)


Connections = for_asyncio.Connections


@pytest.fixture(params=[Connections, Threaded], ids=["async", "sync"])
def run(request):
    """Runs a test with a server, and with connections of each kind to it."""
    return lambda script, test, **options: run_with(request.param, script, test, **options)


class Peer:
    """The client's connections to a server, and the server."""

    def __init__(self, server, connections, url):
        self.server, self.connections, self.url = server, connections, url

    async def ask(self, method="GET", *, content=None, stream=False, **timeouts):
        timeout = {"connect": LONG_S, "read": LONG_S, "write": LONG_S, "pool": LONG_S, **timeouts}
        request = httpx.Request(method, self.url, content=content, extensions={"timeout": timeout})
        response = await self.connections.handle_async_request(request)
        response.request = request
        if not stream:
            await response.aread()
        return response

    async def fails(self, error, match=None, method="GET", **options):
        """Make a request that fails, after which nothing is in use any more."""
        with pytest.raises(error, match=match):
            await self.ask(method, **options)
        self.check_unused()

    def check_unused(self):
        assert self.connections._slots._value == self.slots
        assert not self.connections._busy

    slots = 3


def run_with(kind, script, test, **options):

    async def main():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(60))
        server = Server(script)
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        connections = kind(httpx.URL(url), None, **{"connections_max": Peer.slots, "idle_max": 2, **options})
        try:
            await test(Peer(server, connections, url))
        finally:
            await connections.aclose()
            listener.close()
            await listener.wait_closed()

    asyncio.run(main())


def bytewise(answer):
    return [answer[n : n + 1] for n in range(len(answer))]


@pytest.mark.parametrize("split", [lambda answer: [answer], bytewise], ids=["whole", "bytewise"])
@pytest.mark.parametrize(
    ("answer", "body", "method", "reused"),
    [
        (OK, b"ok", "GET", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK, b"ok", "POST", True),
        (CHUNKED + b"1;ext=1\r\no\r\n1\r\nk\r\n0\r\nTrailer: x\r\n\r\n", b"ok", "GET", True),
        (OK[:-2], b"", "HEAD", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", "DELETE", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", b"ok", "GET", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", "GET", False),
        (OK + b"HTTP/1.1 200 not asked for", b"ok", "GET", False),
    ],
)
def test_answers_are_read_as_they_come(run, answer, body, method, reused, split):
    async def test(peer):
        for _ in range(2):
            response = await peer.ask(method, content=b"{}" if method == "POST" else None)
            assert (response.content, response.http_version) == (body, answer[:8].decode())
            peer.check_unused()
            # Bytes after an answer may come late: until then, nothing shows that the connection is unusable.
            await peer.server.answered.get()
        assert len(peer.server.requests) == 2
        assert peer.server.accepted == (1 if reused else 2)

    run(answering(*split(answer)), test)


def test_an_answer_without_a_length_ends_with_its_connection(run):
    async def test(peer):
        assert (await peer.ask()).content == b"rest"
        assert (await peer.ask()).content == b"rest"

    run(answering(b"HTTP/1.1 200 OK\r\n\r\nrest", then=end), test)


@pytest.mark.parametrize(
    ("answer", "then", "error", "match"),
    [
        (b"", end, httpx.RemoteProtocolError, "without an answer"),
        (b"HTTP/1.1 200", end, httpx.RemoteProtocolError, "without an answer"),
        (OK[:-1], end, httpx.RemoteProtocolError, "incomplete|without sending"),
        (CHUNKED + b"5\r\nab", end, httpx.RemoteProtocolError, "incomplete|without sending"),
        (CHUNKED + b"x\r\nab", stall, httpx.RemoteProtocolError, None),
        (b"", reset, httpx.ReadError, "reset"),
        (OK[:-1], reset, httpx.ReadError, "reset"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", stall, httpx.RemoteProtocolError, None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", stall, httpx.RemoteProtocolError, None),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", stall, httpx.RemoteProtocolError, None),
        (b"HTTP/1.1 200 OK\r\nA: " + b"a" * HEADERS_BYTES_MAX, stall, httpx.RemoteProtocolError, None),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * INTERIM_MAX, stall, httpx.RemoteProtocolError, "does not come to"),
    ],
)
def test_answers_that_are_none_are_errors(run, answer, then, error, match):
    async def test(peer):
        await peer.fails(error, match)
        assert len(peer.server.requests) == 1

    run(answering(answer, then=then), test)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nConte", OK[:-1], CHUNKED + b"5\r\nab"])
def test_a_server_that_stalls_is_not_waited_for_longer_than_allowed(run, answer):
    async def test(peer):
        await peer.fails(httpx.ReadTimeout, read=AT_ONCE_S)

    run(answering(answer, then=stall), test)


def test_a_server_that_does_not_read_is_not_waited_for_longer_than_allowed(run):
    async def script(server, reader, writer):
        await asyncio.sleep(LONG_S)

    async def test(peer):
        await peer.fails(httpx.WriteTimeout, None, "POST", content=bytes(20_000_000), write=AT_ONCE_S)

    async def cancelled(peer):
        await test(peer)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    run(script, cancelled)


def test_a_server_that_answers_before_it_has_read_all_is_heard(run):
    async def script(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.write_eof()
        await stall(reader, writer)

    async def test(peer):
        response = await peer.ask("POST", content=bytes(20_000_000))
        assert response.status_code == 413
        peer.check_unused()

    run(script, test)


def test_a_header_that_would_be_two_is_not_sent(run):
    async def test(peer):
        request = httpx.Request("GET", peer.url, headers={"a": "b\r\nc: d"})
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), LONG_S)
        with pytest.raises(httpx.LocalProtocolError):
            await peer.connections.handle_async_request(request)
        assert (await peer.ask()).content == b"ok"
        assert len(peer.server.requests) == 1

    run(answering(OK), test)


def test_a_connection_that_the_server_has_closed_is_not_used_again(run):
    async def test(peer):
        for _ in range(3):
            assert (await peer.ask()).content == b"ok"
            # The event loop of the client does not get to see the end before the next request.
            (connection,) = peer.connections._idle
            if hasattr(connection, "_transport"):
                connection._transport.pause_reading()
            await peer.server.done.wait()
            peer.server.done.clear()
        assert peer.server.accepted == 3

    run(answering(OK, then=end), test)


def test_connections_grow_old(run, monkeypatch):
    async def test(peer):
        await peer.ask()
        monkeypatch.setattr(for_asyncio, "IDLE_S", -1.0)
        monkeypatch.setattr(for_threads, "IDLE_S", -1.0)
        await peer.ask()
        assert peer.server.accepted == 2

    run(answering(OK), test)


FORKING = """
import os, sys
from rioni.client import Client

with Client(sys.argv[1]) as client:
    client.request("GET", "/a")
    child = os.fork()
    client.request("GET", "/b")
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_connections_of_its_own():
    async def test(peer):
        program = [sys.executable, "-W", "error", "-c", FORKING, peer.url]
        await asyncio.to_thread(subprocess.run, program, check=True, timeout=LONG_S)
        assert (peer.server.accepted, len(peer.server.requests)) == (2, 3)

    run_with(Connections, answering(OK), test)


def test_few_idle_connections_are_kept(run):
    async def test(peer):
        await asyncio.gather(*(peer.ask() for _ in range(3)))
        assert len(peer.connections._idle) == 3
        await peer.ask()
        assert len(peer.connections._idle) == 2

    run(answering(OK), test)


def test_the_number_of_connections_is_limited(run):
    async def test(peer):
        responses = await asyncio.gather(*(peer.ask() for _ in range(50)))
        assert {response.content for response in responses} == {b"ok"}
        assert peer.server.open_max <= peer.slots
        streams = [await peer.ask(stream=True) for _ in range(peer.slots)]
        with pytest.raises(httpx.PoolTimeout):
            await peer.ask(pool=AT_ONCE_S)
        for stream in streams:
            await stream.aclose()
        peer.check_unused()
        assert (await peer.ask()).content == b"ok"

    run(answering(OK), test)


def test_an_answer_that_is_left_closes_its_connection(run):
    async def test(peer):
        response = await peer.ask(stream=True)
        assert [await anext(response.aiter_raw())] == [b"ab"]
        await response.aclose()
        peer.check_unused()
        await peer.server.done.wait()
        assert peer.connections._idle == []
        with pytest.raises(StopAsyncIteration):
            await anext(aiter(response.stream))

    run(answering(CHUNKED + b"2\r\nab\r\n", then=stall), test)


def test_what_nobody_reads_is_not_received():
    size = 20 * UNREAD_BYTES_MAX

    async def test(peer):
        response = await peer.ask(stream=True)
        (connection,) = peer.connections._busy
        while not connection._reading_paused:
            await connection._wait(LONG_S, httpx.ReadTimeout(""))
        assert connection._received_bytes < 2 * UNREAD_BYTES_MAX
        assert len(await response.aread()) == size
        peer.check_unused()

    run_with(Connections, answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size, bytes(size)), test)


def test_closing_ends_what_is_under_way(run):
    async def test(peer):
        streams = [await peer.ask(stream=True) for _ in range(2)]
        reading = [asyncio.ensure_future(stream.aread()) for stream in streams]
        asking = asyncio.ensure_future(peer.ask())
        await asyncio.sleep(0)
        await peer.connections.aclose()
        results = await asyncio.gather(*reading, asking, return_exceptions=True)
        assert [isinstance(result, httpx.TransportError) for result in results] == [True] * 3
        peer.check_unused()

    run(answering(OK[:-1], then=stall), test)


def test_requests_that_are_cancelled_at_any_moment_leave_nothing_behind():
    chance = random.Random(1)

    async def cancelled(peer):
        task = asyncio.ensure_future(peer.ask())
        for _ in range(chance.randrange(20)):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            assert (await task).content == b"ok"

    async def test(peer):
        for _ in range(50):
            await asyncio.gather(*(cancelled(peer) for _ in range(5)), peer.ask())
            peer.check_unused()
        assert len(peer.connections._idle) <= peer.slots

    run_with(Connections, answering(*bytewise(OK)), test)


def test_a_client_may_be_used_by_one_event_loop_after_the_other():
    async def ask():
        return (await Peer(None, connections, url).ask()).content

    with scripted_server() as server:
        url = server.url
        server.script(Answer(200, "ok"))
        connections = Connections(httpx.URL(url), None, connections_max=1, idle_max=1)
        with asyncio.Runner() as first, asyncio.Runner() as second:
            assert [runner.run(ask()) for runner in (first, second, first)] == [b'"ok"'] * 3
            second.run(connections.aclose())


def test_a_host_is_found_by_its_name():
    async def ask():
        connections = Connections(httpx.URL(url), None, connections_max=1, idle_max=1)
        answer = await Peer(None, connections, url).ask()
        await connections.aclose()
        return answer.status_code

    with scripted_server() as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert asyncio.run(ask()) == 200


def test_a_server_that_is_not_there_is_a_failed_connection():
    async def test():
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        connections = Connections(httpx.URL(url), None, connections_max=1, idle_max=1)
        await Peer(None, connections, url).ask()

    with pytest.raises(httpx.ConnectError):
        asyncio.run(test())


def test_a_server_that_does_not_shake_hands_is_not_waited_for_longer_than_allowed():
    async def test():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"https://127.0.0.1:{silent.getsockname()[1]}"
            trusted = httpx.create_ssl_context()
            connections = Connections(httpx.URL(url), trusted, connections_max=1, idle_max=1)
            await Peer(None, connections, url).ask(connect=AT_ONCE_S)

    with pytest.raises(httpx.ConnectTimeout):
        asyncio.run(test())


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "localhost")])
@pytest.mark.parametrize("kind", ["asyncio", "threads"])
def test_a_host_that_does_not_answer_is_named_as_urls_have_it(kind, host, shown):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as silent:
        wanted = host, silent.getsockname()[1], httpx.create_ssl_context(), AT_ONCE_S
        with pytest.raises(httpx.ConnectTimeout) as caught:
            asyncio.run(open_for_asyncio(*wanted)) if kind == "asyncio" else open_for_threads(*wanted)
    assert str(caught.value) == f"no connection to {shown}:{wanted[1]} in time"
