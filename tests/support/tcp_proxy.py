"""TCP proxies between a node and the servers it depends on, which hold back traffic as failing networks do."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence


HOST = "127.0.0.1"
CONNECT_TIMEOUT_S = 5

Target = tuple[str, int] | str
"""A host and a port, or the path of a Unix socket."""


class TcpProxy:
    """Connects to one server, and listens at `address`.

    Traffic that is held back is not lost: it arrives when the network is restored, however late that is; unless the
    connections break before.
    """

    def __init__(self, target: Target | None = None) -> None:
        self.target = target
        """The server's address; may be set later, if the server has to know the proxy's address first."""
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"{HOST}:{self.port}"
        self._there, self._back, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._refuses = threading.Event()
        self._awaited = b""
        self._connections: set[_Connection] = set()
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Hold back the requests to the server, its answers, or both."""
        if there:
            self._there.clear()
        if back:
            self._back.clear()

    def cut_answer_to(self, text: bytes) -> None:
        """Hold back the server's answers as soon as these bytes have been sent to it."""
        self._awaited = text

    def refuse(self) -> None:
        """Close all connections, and each new one at once, as if the server had ended."""
        self._refuses.set()
        self.break_off()

    def heal(self) -> None:
        """Restore the traffic; what was held back arrives first."""
        self._refuses.clear()
        self._there.set()
        self._back.set()

    def break_off(self) -> None:
        """Close all connections: what is held back is lost."""
        for each in list(self._connections):
            each.end()

    def close(self) -> None:
        """Stop accepting connections, and close the open ones."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_off()
        self.heal()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), _connected(self.target) as server:
            connection = _Connection(client, server)
            self._connections.add(connection)
            if self._closed.is_set() or self._refuses.is_set():
                connection.end()
            answers = threading.Thread(target=connection.forward, args=(server, client, self._back), daemon=True)
            answers.start()
            connection.forward(client, server, self._there, self._look)
            answers.join()
            self._connections.discard(connection)

    def _look(self, data: bytes) -> None:
        if self._awaited and self._awaited in data:
            self._awaited = b""
            self.cut(there=False)


class _Connection:
    """The two sockets of a connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self._sockets = client, server
        self._ended = threading.Event()

    def end(self) -> None:
        """Shut down both sides."""
        self._ended.set()
        self._shut()

    def forward(
        self,
        source: socket.socket,
        target: socket.socket,
        flows: threading.Event,
        look: Callable[[bytes], None] = lambda _data: None,
    ) -> None:
        """Pass on what one side sends, first to `look`, then to the other side, until one of them has closed."""
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                look(data)
                flows.wait()
                if self._ended.is_set():
                    break
                target.sendall(data)
        self._shut()

    def _shut(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _connected(target: Target | None) -> socket.socket:
    assert target is not None, "the address must be set before the first connection"
    if not isinstance(target, str):
        server = socket.create_connection(target, timeout=CONNECT_TIMEOUT_S)
        server.settimeout(None)
        return server
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(target)
    except OSError:
        server.close()
        raise
    return server


@contextlib.contextmanager
def proxies(count: int) -> Iterator[Sequence[TcpProxy]]:
    """Start `count` proxies without a server yet; they end with the block."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(TcpProxy())) for _ in range(count)]


@contextlib.contextmanager
def proxies_to(hosts: str) -> Iterator[Sequence[TcpProxy]]:
    """A proxy to each of `host:port,host:port`; they end with the block."""
    targets = [each.rpartition(":") for each in hosts.split(",")]
    with proxies(len(targets)) as ways:
        for way, (host, _, port) in zip(ways, targets, strict=True):
            way.target = (host, int(port))
        yield ways
