"""Connections to a broker for asyncio; `_sync/connections.py` has the same name for threads."""

import asyncio
import ssl
import time
from ipaddress import ip_address
from typing import Any, Self

import h11
import httpx

from rioni.client._async.connection import Connection


SECOND_ADDRESS_S = 0.25
"""After which the next address of a host is tried beside the one that does not answer (RFC 8305)."""
IDLE_S = 5.0
"""How long a connection may be idle and is used again, as in httpx: servers close them soon."""


def connections(
    url: str, trusted: ssl.SSLContext | None, proxy: str | None, connections_max: int, idle_max: int
) -> httpx.AsyncBaseTransport:
    """What makes requests to the server at a URL, through a proxy if there is one.

    PERF: a request takes 200 µs of CPU in all, and 500 µs with httpx's own transport, that is httpcore over anyio.
    """
    if proxy is None:
        return Connections(httpx.URL(url), trusted, connections_max, idle_max)
    limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=idle_max)
    return httpx.AsyncHTTPTransport(limits=limits, verify=trusted or False, proxy=proxy)


class Connections(httpx.AsyncBaseTransport):
    """Connections to one server, each of which makes one request after the other.

    Errors are those of httpx. A request is made once: whether it may be made again is for the caller to know.
    """

    def __init__(self, url: httpx.URL, trusted: ssl.SSLContext | None, connections_max: int, idle_max: int) -> None:
        self._host, self._port, self._ssl = url.host, url.port or (443 if trusted else 80), trusted
        self._slots, self._idle_max = asyncio.Semaphore(connections_max), idle_max
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._closed = False

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Make a request; blocks until the head of the answer has come."""
        timeouts = request.extensions["timeout"]
        await self._take_slot(timeouts["pool"])
        connection: Connection | None = None
        try:
            connection = self._reusable() or await self._opened(timeouts["connect"])
            self._busy.add(connection)
            await connection.send(request, timeouts["write"])
            head = await connection.receive_head(timeouts["read"])
        except BaseException:
            self._put_back(connection)
            raise
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(connection, timeouts["read"], self),
            extensions={
                "http_version": b"HTTP/" + head.http_version,
                "reason_phrase": head.reason,
                "network_stream": connection.transport,
            },
        )

    async def aclose(self) -> None:
        """Close all connections; what waits for them fails."""
        self._closed = True
        for connection in [*self._idle, *self._busy]:
            connection.close()
        self._idle.clear()
        # The event loop closes the sockets.
        await asyncio.sleep(0)

    async def _take_slot(self, timeout_s: float | None) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._slots.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("All connections are in use") from None

    def _reusable(self) -> Connection | None:
        """An open connection that is idle, the last one that was used; the others grow old and are closed."""
        oldest_s = time.monotonic() - IDLE_S
        while self._idle and (self._idle[0].idle_since_s < oldest_s or len(self._idle) > self._idle_max):
            self._idle.pop(0).close()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
            connection.close()
        return None

    async def _opened(self, timeout_s: float | None) -> Connection:
        loop, server_name = asyncio.get_running_loop(), self._host if self._ssl else None
        # Python loses the socket of such an attempt that is cancelled as it succeeds: not where there is one address.
        delay_s = SECOND_ADDRESS_S if _is_name(self._host) else None
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await loop.create_connection(
                    Connection,
                    self._host,
                    self._port,
                    ssl=self._ssl,
                    server_hostname=server_name,
                    happy_eyeballs_delay=delay_s,
                )
        except TimeoutError:
            raise httpx.ConnectTimeout(f"no connection to {self._host}:{self._port} in time") from None
        except (OSError, UnicodeError) as ex:
            raise httpx.ConnectError(str(ex)) from ex
        if self._closed:
            connection.close()
            raise httpx.ConnectError("The client was closed meanwhile")
        return connection

    def _put_back(self, connection: Connection | None) -> None:
        """End the use of a connection, which is kept if it is ready for another request."""
        self._slots.release()
        if connection is None:
            return
        self._busy.discard(connection)
        if connection.ready_again():
            self._idle.append(connection)
        else:
            connection.close()


class _Body(httpx.AsyncByteStream):
    """The body of an answer, which gives its connection back at its end."""

    def __init__(self, connection: Connection, timeout_s: float | None, connections: Connections) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._connections: Connections | None = connections

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._connections is None:
            raise StopAsyncIteration
        try:
            event: Any = await self._connection.receive(self._timeout_s)
        except BaseException:
            await self.aclose()
            raise
        if isinstance(event, h11.Data):
            return event.data
        await self.aclose()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        connections, self._connections = self._connections, None
        if connections is not None:
            connections._put_back(self._connection)  # noqa: SLF001 - they belong together


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
