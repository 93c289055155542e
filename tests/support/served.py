"""The application of a broker in this process behind a socket, for clients that know nothing but a URL."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from socketserver import ThreadingMixIn
from threading import Thread
from typing import Any, NamedTuple, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from tests.support.in_process import HOST, LOOPBACK


OPENED_MAX = {"/events": 2, "/audit": 20}
"""By the last part of the path, how often a stream is opened, or how many pages are read.

Clients would open a stream again and again that is ended as soon as it begins. A page may have few entries.
"""


class Asked(NamedTuple):
    """A request, and how it was answered."""

    method: str
    path: str
    status: int


class Served(ThreadingMixIn, WSGIServer):
    """Answers each connection in a separate thread, and remembers what was asked for."""

    daemon_threads = True

    def __init__(self, app: Callable[..., Any]) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.asked: list[Asked] = []
        """The requests so far, in order."""
        self.set_app(self._watched(app))

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{LOOPBACK}:{self.server_port}"

    def _watched(self, app: Callable[..., Any]) -> Callable[..., Any]:
        def watched(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
            again = self.asked.count(Asked("GET", environ["PATH_INFO"], HTTPStatus.OK))
            if any(environ["PATH_INFO"].endswith(end) and again >= most for end, most in OPENED_MAX.items()):
                start_response("400 Bad Request", [])
                return []

            def start(status: str, *args: Any) -> Any:
                self.asked.append(Asked(environ["REQUEST_METHOD"], environ["PATH_INFO"], int(status[:3])))
                return start_response(status, *args)

            return app(environ, start)

        return watched


class _Handler(WSGIRequestHandler):
    """Answers a request, and closes the connection."""

    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            return
        handler = _Answer(self.rfile, self.wfile, self.get_stderr(), self.get_environ(), multithread=True)
        handler.request_handler = self  # type: ignore[attr-defined] - the base class uses it to log
        handler.run(cast("WSGIServer", self.server).get_app())

    def get_environ(self) -> dict[str, Any]:
        return super().get_environ() | {
            "HTTP_HOST": HOST,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "RAW_URI": self.path,
            "gunicorn.socket": self.connection,
        }

    def log_message(self, *_: object) -> None:
        pass


class _Answer(ServerHandler):
    http_version = "1.1"

    def send_preamble(self) -> None:
        super().send_preamble()
        self._write(b"Connection: close\r\n")

    def close(self) -> None:
        # The base class would write a line of a log.
        super(ServerHandler, self).close()


@contextmanager
def served(app: Callable[..., Any]) -> Iterator[Served]:
    """Serve an application at a free port of this machine, until the block ends."""
    with Served(app) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
