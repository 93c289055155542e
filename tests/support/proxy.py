"""A proxy between a client and a PostgreSQL on a Unix socket, which cuts connections at a chosen moment."""

import contextlib
import enum
import socket
import tempfile
import threading
from collections.abc import Iterator

from sqlalchemy import make_url


SOCKET = ".s.PGSQL.5432"
COMMIT = b"COMMIT\0"


class Cut(enum.Enum):
    """At which point the next connection that commits is cut."""

    NEVER = enum.auto()
    BEFORE = enum.auto()
    """The server does not receive the commit."""
    AFTER = enum.auto()
    """The server has committed, and its answer is lost."""
    FOR_GOOD = enum.auto()
    """The server receives neither the commit nor anything after it."""


class Proxy:
    """The proxy; `url` connects through it."""

    def __init__(self, url: str, folder: str) -> None:
        self._parsed = make_url(url)
        self._server = f"{self._parsed.query['host']}/{SOCKET}"
        self.url = self._parsed.update_query_dict({"host": folder}).render_as_string(hide_password=False)
        self.cut = Cut.NEVER
        """Reset to NEVER by the connection that is cut, unless `always`."""
        self.always = False
        self.cuts = 0
        self._silent = threading.Event()
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/{SOCKET}")
        self._listener.listen()
        self._connections: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def silence(self) -> None:
        """Drop all traffic on connections that stay open, as a network does that loses packets."""
        self._silent.set()

    def close(self) -> None:
        """Cut all connections."""
        # Closing alone would not wake the accepting thread.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for each in self._open:
                _shut(each)

    def join(self) -> None:
        """Wait until all connections are closed."""
        self._acceptor.join()
        for connection in self._connections:
            connection.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                connection = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._connections.append(connection)
                connection.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            with self._lock:
                self._open |= {client, server}
            there = threading.Thread(target=self._forward, args=(client, server, True), daemon=True)
            there.start()
            self._forward(server, client, False)
            there.join()
            with self._lock:
                self._open -= {client, server}

    def _forward(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if self._silent.is_set():
                    continue
                cut = self._cut_now() if from_client and COMMIT in data else Cut.NEVER
                if cut is Cut.FOR_GOOD:
                    self.close()
                if cut in {Cut.BEFORE, Cut.FOR_GOOD}:
                    break
                if cut is Cut.AFTER:
                    _shut(source)
                    target.sendall(data)
                    # The other direction ends when the server has answered and received the end of the stream.
                    target.shutdown(socket.SHUT_WR)
                    return
                target.sendall(data)
        _shut(source)
        _shut(target)

    def _cut_now(self) -> Cut:
        with self._lock:
            cut = self.cut
            if cut is not Cut.NEVER:
                self.cuts += 1
                if not self.always:
                    self.cut = Cut.NEVER
            return cut


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    """A proxy to the server of a URL; it ends with the block."""
    with tempfile.TemporaryDirectory(prefix="rioni-proxy-") as folder:
        proxy = Proxy(url, folder)
        with contextlib.closing(proxy):
            yield proxy
        proxy.join()
