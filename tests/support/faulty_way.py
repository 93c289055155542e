"""A way to a broker on which requests and answers are lost, refused and cut off, by the number of the request.

Each connection carries one request, so that what is cut is the answer to this one.
"""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from tests.support.waiting import WAIT_S


READ_BYTES = 65_536


class Fault(NamedTuple):
    """The fault of a request."""

    arrives: bool = True
    """Whether the broker gets it."""
    answer: bytes | None = None
    """Replaces the broker's answer."""
    answer_bytes: int | None = 0
    """The number of bytes of the answer that come back; None for all of it."""


REFUSED = Fault(arrives=False)
LOST = Fault()


def status(code: int, *, retry_after_s: int | None = None) -> Fault:
    """A refusal of a broker or proxy."""
    return answer(code, {"title": "No", "status": code}, retry_after_s=retry_after_s)


def answer(code: int, body: object, *, retry_after_s: int | None = None, end: str = "") -> Fault:
    """An answer that replaces that of the broker, which gets nothing; has no body if `body` is None."""
    content = "" if body is None else json.dumps(body) + end
    header = "" if retry_after_s is None else f"Retry-After: {retry_after_s}\r\n"
    head = f"HTTP/1.1 {code} No\r\n{header}Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return Fault(arrives=False, answer=f"{head}{content}".encode(), answer_bytes=None)


def cut(answer_bytes: int) -> Fault:
    """The answer is cut off after some bytes."""
    return Fault(answer_bytes=answer_bytes)


class FaultyWay:
    """Listens at `url`; `requests` are the first lines of those that came."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[str] = []
        self.answered_bytes: dict[int, int] = {}
        """Bytes of the broker's answer, by the number of the request."""
        self._lock = threading.Lock()
        self._fault_of: Callable[[int, str], Fault | Literal[False] | None] = lambda _number, _request: None
        threading.Thread(target=self._accept, daemon=True).start()

    def script(self, fault_of: Callable[[int, str], Fault | Literal[False] | None]) -> None:
        """Begin anew.

        Args:
            fault_of: what happens to a request, by its number, from 0 on, and its first line; otherwise nothing.
        """
        with self._lock:
            self.requests, self.answered_bytes, self._fault_of = [], {}, fault_of

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(WAIT_S)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            request = _read(client)
            if request is None:
                return
            line = request.partition(b"\r\n")[0].decode()
            with self._lock:
                number, answered = len(self.requests), self.answered_bytes
                fault = self._fault_of(number, line) or Fault(answer_bytes=None)
                self.requests.append(line)
            if fault.answer is not None:
                client.sendall(fault.answer)
            if fault.arrives:
                for size in self._forward(request, client, fault.answer_bytes):
                    answered[number] = size
            client.shutdown(socket.SHUT_RDWR)

    def _forward(self, request: bytes, client: socket.socket, answer_bytes: int | None) -> Iterator[int]:
        """Pass on a request, and its answer up to some byte; yields how much has arrived."""
        passed = 0
        with socket.create_connection((self._target.hostname, self._target.port), WAIT_S) as server:
            server.sendall(request)
            while data := server.recv(READ_BYTES):
                left = len(data) if answer_bytes is None else max(0, answer_bytes - passed)
                passed += len(data)
                yield passed
                client.sendall(data[:left])
                if answer_bytes is not None and passed >= answer_bytes:
                    break


def _read(client: socket.socket) -> bytes | None:
    """A request, as one that is the last one of its connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = client.recv(READ_BYTES)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    while length is not None and len(body) < int(length[1]):
        body += client.recv(READ_BYTES)
    return re.sub(rb"(?i)\r\nconnection:[^\r]*", b"", head) + b"\r\nConnection: close\r\n\r\n" + body


@contextlib.contextmanager
def faulty_way(url: str) -> Iterator[FaultyWay]:
    """Such a way to the broker at a URL, until the end of the block."""
    with contextlib.closing(FaultyWay(url)) as way:
        yield way
