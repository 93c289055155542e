"""A connection for asyncio; `_sync/connection.py` has the same names for threads."""

import asyncio
import select
import ssl
from ipaddress import ip_address
from typing import Any, cast

import h11
import httpx

from rioni.client.http11 import Http11, host_and_port


SECOND_ADDRESS_S = 0.25
"""Seconds after which the next address of a host is tried in parallel with one that does not answer (RFC 8305)."""
UNREAD_BYTES_MAX = 500_000
"""Bytes that have arrived and were not requested, after which no more are read."""


async def open_connection(
    host: str, port: int, trusted: ssl.SSLContext | None, timeout_s: float | None
) -> "HttpConnection":
    """Connect to a server; raises httpx.ConnectError and httpx.ConnectTimeout."""
    loop, server_name = asyncio.get_running_loop(), host if trusted else None
    # Python loses the socket of a racing attempt that is cancelled as it succeeds; a single address needs no race.
    delay_s = SECOND_ADDRESS_S if _is_name(host) else None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                HttpConnection, host, port, ssl=trusted, server_hostname=server_name, happy_eyeballs_delay=delay_s
            )
    except TimeoutError:
        raise httpx.ConnectTimeout(f"no connection to {host_and_port(host, port)} in time") from None
    except (OSError, UnicodeError) as ex:
        raise httpx.ConnectError(str(ex)) from ex
    return connection


class HttpConnection(asyncio.Protocol):
    """Makes one request at a time; deadlines are for each time that it waits. Errors are those of httpx."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = Http11()
        self._received: list[bytes] = []
        self._received_bytes = 0
        self._ended, self._error = False, ""
        self._writing_paused = self._reading_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.idle_since_s = 0.0

    async def send(self, request: httpx.Request, timeout_s: float | None) -> None:
        """Send a request; if the server answers before it has read all of it, `receive` may return that answer."""
        self._transport.write(self._http.encode(request))
        while self._writing_paused and not self._ended:
            await self._wait(timeout_s, httpx.WriteTimeout("the server does not read"))

    async def receive(self, timeout_s: float | None) -> h11.Event:
        """Wait for the next part of the answer."""
        while (event := self._http.decode()) is None:
            while not self._received and not self._ended:
                await self._wait(timeout_s, httpx.ReadTimeout("no answer in time"))
            if not self._received and self._error:
                raise httpx.ReadError(self._error)
            for data in self._received or [b""]:
                self._http.receive(data)
            self._received.clear()
            self._received_bytes = 0
            if self._reading_paused:
                self._reading_paused = False
                self._transport.resume_reading()
        return event

    async def _wait(self, timeout_s: float | None, error: httpx.TimeoutException) -> None:
        """Wait until something happens to the connection."""
        self._waiter = self._loop.create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._waiter
        except TimeoutError:
            raise error from None
        finally:
            self._waiter = None

    def _happened(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def usable(self) -> bool:
        """Whether the server is not known to have closed the idle connection."""
        if self._ended or self._received or self._loop is not asyncio.get_running_loop():
            return False
        # The loop may not have noticed yet.
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def begin_again(self) -> bool:
        """Make it ready for another request; returns whether it is."""
        return not self._ended and not self._received and self._http.begin_again()

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        self._ended, self._error = True, "The connection is closed"
        self._happened()
        if not self._loop.is_closed():
            self._transport.abort()

    def interrupt(self) -> None:
        """End the request under way; the task that waits closes the connection."""
        self.close()

    def get_extra_info(self, name: str) -> Any:
        """Return what streams of httpx return under a name: the `socket`."""
        return self._transport.get_extra_info(name)

    # --- Callbacks of the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes > UNREAD_BYTES_MAX and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()
        self._happened()

    def eof_received(self) -> None:
        self._ended = True
        self._happened()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._error = True, self._error or str(exc or "")
        self._happened()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._happened()


def _is_name(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return True
    return False
