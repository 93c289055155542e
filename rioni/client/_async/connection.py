"""A connection for asyncio that speaks HTTP/1.1: h11 says what the bytes mean."""

import asyncio
import select
import time
from typing import cast

import h11
import httpx


HEADERS_BYTES_MAX = 100_000
INTERIM_MAX = 100
"""Answers such as `100 Continue` before the one that counts."""
UNREAD_BYTES_MAX = 500_000
"""Bytes that have come and nobody has asked for, after which no more are read."""


class Connection(asyncio.Protocol):
    """Makes one request at a time; deadlines are for each time that it waits. Errors are those of httpx."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEADERS_BYTES_MAX)
        self._received: list[bytes] = []
        self._received_bytes = 0
        self._ended, self._error = False, ""
        self._writing_paused = self._reading_paused = False
        self._waiter: asyncio.Future[None] | None = None
        self.idle_since_s = 0.0

    async def send(self, request: httpx.Request, timeout_s: float | None) -> None:
        """Send a request; a server that answers before it has read all of it may be heard by `receive_head`."""
        try:
            target = request.url.raw_path
            data = self._http.send(h11.Request(method=request.method, target=target, headers=request.headers.raw))
            data += self._http.send(h11.Data(request.content)) + self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as ex:
            raise httpx.LocalProtocolError(str(ex)) from ex
        self.transport.write(data)
        while self._writing_paused and not self._ended:
            await self._wait(timeout_s, httpx.WriteTimeout("the server does not read"))

    async def receive_head(self, timeout_s: float | None) -> h11.Response:
        """Wait for the answer."""
        for _ in range(INTERIM_MAX):
            event = await self.receive(timeout_s)
            if isinstance(event, h11.Response):
                return event
        raise httpx.RemoteProtocolError("The server does not come to its answer")

    async def receive(self, timeout_s: float | None) -> h11.Event:
        """Wait for the next part of the answer."""
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                await self._receive_data(timeout_s)
        except h11.RemoteProtocolError as ex:
            raise httpx.RemoteProtocolError(str(ex)) from ex
        assert not isinstance(event, type), event
        return event

    async def _receive_data(self, timeout_s: float | None) -> None:
        while not self._received and not self._ended:
            await self._wait(timeout_s, httpx.ReadTimeout("no answer in time"))
        if not self._received and self._error:
            raise httpx.ReadError(self._error)
        if not self._received and self._http.their_state is h11.SEND_RESPONSE:
            raise httpx.RemoteProtocolError("The server closed the connection without an answer")
        for data in self._received or [b""]:
            self._http.receive_data(data)
        self._received.clear()
        self._received_bytes = 0
        if self._reading_paused:
            self._reading_paused = False
            self.transport.resume_reading()

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
        """Whether the server has not closed the idle connection, as far as it is known here."""
        if self._ended or self._received or self._loop is not asyncio.get_running_loop():
            return False
        # The loop may not have looked yet.
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    def ready_again(self) -> bool:
        """Make it ready for another request; returns whether it is."""
        surplus = self._received or self._http.trailing_data[0]
        if self._ended or surplus or not self._http.our_state is self._http.their_state is h11.DONE:
            return False
        self._http.start_next_cycle()
        self.idle_since_s = time.monotonic()
        return True

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        self._ended, self._error = True, "The connection is closed"
        self._happened()
        if not self._loop.is_closed():
            self.transport.abort()

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        self._received_bytes += len(data)
        if self._received_bytes > UNREAD_BYTES_MAX and not self._reading_paused:
            self._reading_paused = True
            self.transport.pause_reading()
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
