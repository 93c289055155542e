"""A lean HTTP/1.1 client for load generators: prebuilt requests, many connections in one thread, answers as they come.

A load generator shares the machine with the server that it measures, so it must cost little: a request is sent as the
given bytes, an answer is read by finding its length, and nothing is copied without need.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from rioni.cli.connections.connection import checked_url
from rioni.domain.errors import Invalid, Unavailable


CONNECT_TIMEOUT_S = 5
READ_BYTES = 1 << 18
HEAD_BYTES_MAX = 65_536
LOST = 0
"""The status of a request whose connection broke before its answer was complete."""

_PORTS = {"http": 80, "https": 443}

OnData = Callable[[bytes], None]
OnAnswer = Callable[[int, bytes], None]


class LoadTarget:
    """The server that requests go to, taken from a base URL, and the bearer token that they carry if there is one.

    The certificate of a server with HTTPS is always checked: against `ca_certificate`, otherwise against the
    authorities of the system, or those that `SSL_CERT_FILE` and `SSL_CERT_DIR` name.

    Args:
        url: the base URL.
        token: the bearer token.
        ca_certificate: PEM file with the authorities to trust.

    Raises:
        Invalid: this is not an http or https URL, or the file of the authorities can't be used.
    """

    def __init__(self, url: str, token: str | None = None, ca_certificate: Path | None = None) -> None:
        parts = urlsplit(checked_url(url))
        assert parts.hostname is not None
        self.tls = _tls(ca_certificate) if parts.scheme == "https" else None
        self.url = url.rstrip("/")
        self.token = token
        self.address = (parts.hostname, parts.port or _PORTS[parts.scheme])
        self.netloc = parts.netloc
        self.path = parts.path.rstrip("/")

    def head(self, method: str, path: str, body_bytes: int | None = None, **headers: str) -> bytes:
        """The bytes of a request up to its body.

        Args:
            method: the verb.
            path: below the base URL.
            body_bytes: the length of the JSON that follows; None if there is no body.
            headers: further ones, with `_` for `-`.
        """
        lines = [f"{method} {self.path}{path} HTTP/1.1", f"Host: {self.netloc}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        if body_bytes is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {body_bytes}"]
        return "\r\n".join([*lines, "", ""]).encode()

    def connect(self) -> socket.socket:
        """Open a connection.

        Raises:
            Unavailable: no server responds there.
        """
        try:
            opened = socket.create_connection(self.address, timeout=CONNECT_TIMEOUT_S)
        except OSError as ex:
            raise self.unreachable(ex) from ex
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls is not None:
            try:
                opened = self.tls.wrap_socket(opened, server_hostname=self.address[0])
            except OSError as ex:
                opened.close()
                raise self.unreachable(ex) from ex
        opened.setblocking(False)
        return opened

    def unreachable(self, ex: Exception) -> Unavailable:
        """The error for an unreachable server."""
        if isinstance(ex, ssl.SSLCertVerificationError):
            return Unavailable(
                f"{self.url} shows a certificate that is not trusted: {ex.verify_message}. If it is of an authority of "
                "your own, name the authority's certificate: --ca-certificate FILE."
            )
        reason = getattr(ex, "strerror", None) or ex
        return Unavailable(
            f"{self.url} does not answer: {reason}. Is the broker running there? Start it with rioni serve."
        )


def _tls(ca_certificate: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_certificate)
    except OSError as ex:
        raise Invalid(f"--ca-certificate {ca_certificate} can't be used: {ex.strerror or ex}.") from ex


class ResponseReader:
    """Reads one answer after the other from the bytes of a connection, in pieces of any size."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.complete = False
        self._buffer = bytearray()
        self._step: Callable[[OnData], bool] = self._head
        self._missing = 0

    def feed(self, data: bytes, on_data: OnData) -> None:
        """Take bytes of the connection; hand what belongs to the body to `on_data`.

        Raises:
            ValueError: this is not HTTP.
        """
        self._buffer += data
        while not self.complete and self._step(on_data):
            pass

    def end(self) -> bool:
        """The server has closed the connection: whether the answer is complete with that."""
        self.complete = self.complete or self._step == self._until_close
        return self.complete

    def _head(self, _on_data: OnData) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise ValueError("an endless head")
            return False
        first, *lines = bytes(self._buffer[:end]).split(b"\r\n")
        del self._buffer[: end + 4]
        self.status = int(first[9:12])
        fields = (line.partition(b":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in fields}
        if self.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            self._step = self._chunk_size
        elif (length := self.headers.get(b"content-length")) is not None:
            self._missing = int(length)
            self._step = self._body
        elif self.status in {204, 304}:
            self.complete = True
        else:
            self._step = self._until_close
        return True

    def _body(self, on_data: OnData) -> bool:
        self.complete = self._take(on_data)
        return False

    def _until_close(self, on_data: OnData) -> bool:
        self._missing = len(self._buffer)
        self._take(on_data)
        return False

    def _chunk_size(self, _on_data: OnData) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        self._missing = int(self._buffer[:end].partition(b";")[0], 16)
        del self._buffer[: end + 2]
        self._step = self._chunk if self._missing else self._trailer
        return True

    def _chunk(self, on_data: OnData) -> bool:
        if not self._take(on_data):
            return False
        self._step = self._chunk_end
        return True

    def _chunk_end(self, _on_data: OnData) -> bool:
        if len(self._buffer) < len(b"\r\n"):
            return False
        del self._buffer[:2]
        self._step = self._chunk_size
        return True

    def _trailer(self, _on_data: OnData) -> bool:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            return False
        del self._buffer[: end + 2]
        self.complete = not end
        return True

    def _take(self, on_data: OnData) -> bool:
        """Hand over the available ones of the missing bytes; return whether none are missing any more."""
        if self._missing and self._buffer:
            data = bytes(self._buffer[: self._missing])
            del self._buffer[: self._missing]
            self._missing -= len(data)
            on_data(data)
        return not self._missing


class LoadConnection:
    """One connection to the server, with one request at a time; opened when it is first needed."""

    def __init__(self, server: LoadTarget, loop: "Loop") -> None:
        self._server, self._loop = server, loop
        self._socket: socket.socket | None = None
        self._unsent = memoryview(b"")
        self.answer = ResponseReader()
        self._on_answer: OnAnswer | None = None
        self._on_data: OnData = self._collect
        self._pieces: list[bytes] = []

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""
        return self._on_answer is None

    def send(self, request: bytes, on_answer: OnAnswer, on_data: OnData | None = None) -> None:
        """Send a request; the loop calls back.

        Args:
            request: all of its bytes.
            on_answer: called with status (`LOST` if the connection broke) and body. It may send the next request.
            on_data: called with every piece of the body at once, instead.

        Raises:
            Unavailable: the server can't be reached.
        """
        assert self._on_answer is None, "one request at a time"
        if self._socket is None:
            self._socket = self._server.connect()
            self._loop.add(self._socket, self)
        self.answer, self._pieces = ResponseReader(), []
        self._on_answer, self._on_data = on_answer, on_data or self._collect
        self._unsent = memoryview(request)
        self.write()

    def write(self) -> None:
        """Send as many bytes as the socket takes."""
        assert self._socket is not None
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError:
            self._lose()
            return
        self._unsent = self._unsent[sent:]
        self._loop.watch(self._socket, self, write=bool(self._unsent))

    def read(self) -> None:
        """Take the bytes that have arrived, including TLS data already decrypted, which the selector does not see."""
        self._read()
        while isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._read()

    def _read(self) -> None:
        assert self._socket is not None
        try:
            data = self._socket.recv(READ_BYTES)
            if not data:
                self._lose(complete=self.answer.end())
                return
            self.answer.feed(data, self._on_data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except (OSError, ValueError):
            self._lose()
            return
        if self.answer.complete:
            if self.answer.headers.get(b"connection", b"").lower() == b"close":
                self.close()
            self._finish(self.answer.status)

    def ready(self, events: int) -> None:
        """The loop has found the socket ready."""
        if events & selectors.EVENT_WRITE:
            self.write()
        if events & selectors.EVENT_READ and self._socket is not None:
            self.read()

    def close(self) -> None:
        """Close the socket, without callbacks."""
        if self._socket is not None:
            self._loop.remove(self._socket)
            self._socket.close()
            self._socket = None

    def _collect(self, data: bytes) -> None:
        self._pieces.append(data)

    def _lose(self, *, complete: bool = False) -> None:
        self.close()
        if self._on_answer is not None:
            self._finish(self.answer.status if complete else LOST)

    def _finish(self, status: int) -> None:
        on_answer, self._on_answer = self._on_answer, None
        assert on_answer is not None
        on_answer(status, b"".join(self._pieces))


class Loop:
    """Watches connections and calls them when there is something to read or write."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, opened: socket.socket, connection: LoadConnection) -> None:
        """Begin to watch a connection's socket."""
        self._selector.register(opened, selectors.EVENT_READ, connection)

    def watch(self, opened: socket.socket, connection: LoadConnection, *, write: bool) -> None:
        """Say whether the connection has something to send."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if write else 0)
        if self._selector.get_key(opened).events != events:
            self._selector.modify(opened, events, connection)

    def remove(self, opened: socket.socket) -> None:
        """Stop watching."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(opened)

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Serve the connections until `done` is true or the monotonic clock shows `until_s`."""
        while not done() and (left_s := until_s - time.monotonic()) > 0:
            for key, events in self._selector.select(min(left_s, 0.1)):
                key.data.ready(events)

    def close(self) -> None:
        """Close all connections."""
        for key in list(self._selector.get_map().values()):
            key.data.close()
        self._selector.close()
