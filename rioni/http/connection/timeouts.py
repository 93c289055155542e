"""Deadlines for receiving requests, and which connections end before there is no room for others."""

import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rioni.http.connection.listener import Tls


# --- Deadlines for receiving the headers and the body of a request ---
#
# A slow client occupies a connection, a greenlet and the memory of what it has sent so far. Between requests it may be
# idle for `keep_alive_s`, which gunicorn enforces.

SMALL_BYTES = 65_536
"""Bytes that the kernel mostly accepts at once."""
RECEIVED_BYTES = 65_536
"""The most that is read at a time. PERF: with each read gunicorn copies what it has not passed on yet, and it would ask
for a whole body."""


class Deadlines(NamedTuple):
    """Time limits of a client."""

    header_s: float
    """The time limit from the first byte of a request to the end of its headers."""
    body_s: float
    """The time limit for the body; also the longest pause within one that takes longer, and for reading an answer."""
    body_bytes_per_s: float
    """Minimum upload rate; each received byte extends the body timeout."""


class DeadlineSocket:
    """The socket of a client, with time-outs for reading and writing.

    Reading raises ConnectionResetError in the headers, when no answer is possible yet, and TimeoutError in a body.
    """

    def __init__(self, sock: Any, deadlines: Deadlines, monotonic_s: Callable[[], float]) -> None:
        self._sock = sock
        self._deadlines = deadlines
        self._monotonic_s = monotonic_s
        self._in_body = self._answered = self._ended = False
        self._begin_s: float | None = None
        self._received_bytes = 0
        self._head = b""
        sock.settimeout(deadlines.body_s)

    def secure(self, tls: Tls, timeout: Callable[[float], contextlib.AbstractContextManager[Any]]) -> None:
        """Do the TLS handshake, within the time limit of headers.

        Args:
            tls: the certificate.
            timeout: `timeout(seconds)` ends its block with TimeoutError after that time.

        Raises:
            OSError: there was no handshake, or not in time.
        """
        self._sock = tls.wrap(self._sock)
        with timeout(self._deadlines.header_s):
            self._sock.do_handshake()

    def expect_body(self, *, answered: bool = False) -> None:
        """Apply the deadline of the body from now on; or of the rest of the body once the request is answered."""
        self._in_body, self._begin_s, self._received_bytes = True, self._monotonic_s(), 0
        self._answered = answered

    def expect_request(self) -> None:
        """Expect the next request from now on."""
        self._in_body, self._begin_s = False, None

    @property
    def idle(self) -> bool:
        """Whether no byte of a next request was received."""
        return self._begin_s is None

    @property
    def waits(self) -> bool:
        """Whether no request is being served: the client loses nothing but time if the connection ends."""
        return not self._ended and (self._answered or not self._in_body)

    def stop_reading(self) -> None:
        """Let the connection end here, as if the client had closed it."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def cut(self) -> None:
        """End the connection in both directions, at once: reads and writes in progress fail."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def recv(self, size: int) -> bytes:
        """Read the available bytes, up to `size` and never more than `RECEIVED_BYTES`."""
        patience_s = self._patience_s()
        if patience_s is not None and patience_s <= 0:
            raise self._too_slow()
        self._sock.settimeout(patience_s)
        try:
            data: bytes = self._sock.recv(min(size, RECEIVED_BYTES))
        except TimeoutError as ex:
            raise self._too_slow() from ex
        except OSError:
            if self._ended:  # gevent ends a blocked read with an error
                return b""
            raise
        finally:
            self._sock.settimeout(self._deadlines.body_s)
        self._received_bytes += len(data)
        if self._begin_s is None:
            self._begin_s = self._monotonic_s()
        return data

    def sendall(self, data: bytes) -> None:
        """Send; the head of an answer whose length is known waits for its body, or for `flush`.

        PERF: saves a packet and some 15 us for each answer with a body. gevent asks for the size of the kernel's buffer
        before it sends, which costs half as much as sending.
        """
        if self._head:
            self._head, data = b"", self._head + data
        elif data.endswith(b"\r\n\r\n") and b"\r\ncontent-length: " in data:
            self._head = data
            return
        sent = self._sock.send(data) if 0 < len(data) <= SMALL_BYTES else 0
        if sent < len(data):
            self._sock.sendall(data[sent:])

    def flush(self) -> None:
        """Send the head of an answer without a body."""
        if self._head:
            self.sendall(b"")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def _patience_s(self) -> float | None:
        """Time-out in seconds for the next bytes; None for unlimited."""
        if self._begin_s is None:
            return None
        if not self._in_body:
            return self._begin_s + self._deadlines.header_s - self._monotonic_s()
        allowed_s = self._deadlines.body_s + self._received_bytes / self._deadlines.body_bytes_per_s
        return min(self._deadlines.body_s, self._begin_s + allowed_s - self._monotonic_s())

    def _too_slow(self) -> OSError:
        if self._in_body:
            return TimeoutError("the client sends too slowly")
        return ConnectionResetError(errno.ECONNRESET, "the client sends too slowly")


# --- The open connections of a worker: idle ones are closed before there is no room for others ---
#
# Anybody may open connections and send nothing. One host that does so must not be in the way of all others until its
# connections are closed for being idle.

ROOM = 0.01
"""The part of all connections that is kept free."""


class OpenConnections:
    """The open connections of one worker, by client address."""

    def __init__(self, connections_max: int) -> None:
        """Start with none.

        Args:
            connections_max: how many the worker serves at a time.
        """
        self._kept_max = connections_max - int(connections_max * ROOM)
        self.count = 0
        """The number of connections from all addresses."""
        self._of_addresses: dict[str, dict[DeadlineSocket, None]] = {}

    def __iter__(self) -> Iterator[DeadlineSocket]:
        """All that are open now."""
        return iter([sock for each in self._of_addresses.values() for sock in each])

    def add(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection; if there are too many, end a waiting one of an address that has as many or more.

        Addresses with the most connections are checked first. If all others are being served, the new one ends if it is
        of these addresses.
        """
        own = self._of_addresses.setdefault(address, {})
        own[sock] = None
        self.count += 1
        if self.count <= self._kept_max:
            return
        # PERF: addresses and connections of 10,000 are looked through in 1 ms.
        others = sorted((each for each in self._of_addresses.values() if len(each) >= len(own)), key=len, reverse=True)
        waiting = (each for of_address in others for each in of_address if each.waits and each is not sock)
        ended = next(waiting, sock if len(own) == len(others[0]) else None)
        if ended is not None:
            ended.stop_reading()

    def discard(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection no longer."""
        of_address = self._of_addresses[address]
        del of_address[sock]
        self.count -= 1
        if not of_address:
            del self._of_addresses[address]
