"""A connection for threads; `_async/connection.py` has the same names for asyncio."""

import contextlib
import os
import select
import socket
import ssl
from typing import Any

import h11
import httpx

from rioni.client.http11 import Http11, host_and_port


PIECE_BYTES_MAX = 256 * 1024


def open_connection(host: str, port: int, trusted: ssl.SSLContext | None, timeout_s: float | None) -> "HttpConnection":
    """Connect to a server; raises httpx.ConnectError and httpx.ConnectTimeout."""
    try:
        connected = socket.create_connection((host, port), timeout_s)
        with contextlib.ExitStack() as undo:
            undo.callback(connected.close)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if trusted is not None:
                connected = trusted.wrap_socket(connected, server_hostname=host)
            undo.pop_all()
    except TimeoutError:
        raise httpx.ConnectTimeout(f"no connection to {host_and_port(host, port)} in time") from None
    except (OSError, UnicodeError) as ex:
        raise httpx.ConnectError(str(ex)) from ex
    return HttpConnection(connected)


class HttpConnection:
    """Makes one request at a time; deadlines are for each time that it waits. Errors are those of httpx."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._http = Http11()
        self._closed = False
        self._process_id = os.getpid()
        self.idle_since_s = 0.0

    def send(self, request: httpx.Request, timeout_s: float | None) -> None:
        """Send a request; a server that answers before it has read all of it may be heard by `receive`."""
        data = self._http.encode(request)
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(data)
        except TimeoutError:
            raise httpx.WriteTimeout("the server does not read") from None
        except OSError:
            # Receiving the answer shows the error.
            pass

    def receive(self, timeout_s: float | None) -> h11.Event:
        """Wait for the next part of the answer."""
        while (event := self._http.decode()) is None:
            try:
                self._socket.settimeout(timeout_s)
                data = self._socket.recv(PIECE_BYTES_MAX)
            except TimeoutError:
                raise httpx.ReadTimeout("no answer in time") from None
            except OSError as ex:
                raise httpx.ReadError(str(ex)) from ex
            if self._closed:
                raise httpx.ReadError("The connection is closed")
            self._http.receive(data)
        return event

    @property
    def usable(self) -> bool:
        """Whether the server has not closed the idle connection, and no parent of this process uses it."""
        if self._process_id != os.getpid():
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    def begin_again(self) -> bool:
        """Make it ready for another request; returns whether it is."""
        return not self._closed and self._http.begin_again()

    def close(self) -> None:
        """Close it at once; no other thread may be using it."""
        self._closed = True
        self._socket.close()

    def interrupt(self) -> None:
        """End what is under way in another thread, which then closes the connection."""
        self._closed = True
        # Not the method of an SSL socket, which would also forget the state that the thread uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def get_extra_info(self, name: str) -> Any:
        """Return the `socket`, as streams of httpx do; None for any other name."""
        return self._socket if name == "socket" else None
