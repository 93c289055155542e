"""Stands between a node and the servers it depends on, and holds back what they say to each other, as networks do."""

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence


class TcpProxy:
    """Leads to one server; `address` is where it listens.

    What is held back is not lost: it arrives when the network is well again, however late that is.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._there, self._back, self._closed = threading.Event(), threading.Event(), threading.Event()
        self.heal()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, there: bool = True, back: bool = True) -> None:
        """Hold back what is said to the server, what it answers, or both."""
        if there:
            self._there.clear()
        if back:
            self._back.clear()

    def heal(self) -> None:
        """Let everything through, what was held back at first."""
        self._there.set()
        self._back.set()

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.heal()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target, timeout=5) as server:
            server.settimeout(None)
            answers = threading.Thread(target=self._forward, args=(server, client, self._back), daemon=True)
            answers.start()
            self._forward(client, server, self._there)
            answers.join()

    def _forward(self, source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                flows.wait()
                if self._closed.is_set():
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxies_to(hosts: str) -> Iterator[Sequence[TcpProxy]]:
    """A proxy to each of `host:port,host:port`; they end with the block."""
    targets = [each.rpartition(":") for each in hosts.split(",")]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(TcpProxy((host, int(port))))) for host, _, port in targets]
