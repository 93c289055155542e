"""A server whose answers a test scripts, one after the other: for faults that a real broker shows rarely."""

import json
import ssl
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from tests.support.http_servers import serving


DROP = "drop"
"""Used as an answer: the connection is closed without one."""


@dataclass(frozen=True)
class Answer:
    """An answer: JSON, or bytes as they are."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """A request that came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class ScriptedServer:
    """Gives the answers in turn, the last one again and again, and remembers the requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Received] = []
        self._answers: deque[Answer | str] = deque([Answer()])
        self._answers_by_path: dict[str, deque[Answer | str]] = {}
        self._lock = threading.Lock()

    def script(self, *answers: Answer | str) -> None:
        """Set the next answers; forgets earlier answers and requests."""
        with self._lock:
            self._answers, self._answers_by_path = deque(answers), {}
            self.requests.clear()

    def script_paths(self, answers: Mapping[str, Sequence[Answer | str]]) -> None:
        """Set the answers for each path, with or without query; 404 for others; forgets all earlier ones."""
        self.script(Answer(404, {"title": "Not Found", "status": 404}))
        with self._lock:
            self._answers_by_path = {path: deque(each) for path, each in answers.items()}

    def answer_to(self, request: Received) -> Answer | str:
        """Take the next answer."""
        with self._lock:
            self.requests.append(request)
            for path in (request.path, request.path.partition("?")[0]):
                if path in self._answers_by_path:
                    return _next_of(self._answers_by_path[path])
            return _next_of(self._answers)

    @property
    def keys(self) -> Iterable[str | None]:
        """The idempotency key of each request."""
        return [request.headers.get("Idempotency-Key") for request in self.requests]


def _next_of(answers: deque[Answer | str]) -> Answer | str:
    return answers.popleft() if len(answers) > 1 else answers[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    scripted: ScriptedServer

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.scripted.answer_to(Received(self.command, self.path, httpx.Headers(self.headers.items()), body))
        if not isinstance(answer, Answer):
            self.close_connection = True
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        if "Date" in answer.headers:
            self.send_response_only(answer.status)
        else:
            self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any  # noqa: N815 - names of the base class

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextmanager
def scripted_server(tls: ssl.SSLContext | None = None) -> Iterator[ScriptedServer]:
    """Run such a server on a free port until the end of the block, for HTTPS if there is a context for it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    scripted = ScriptedServer(f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"scripted": scripted})
    with serving(server):
        yield scripted
