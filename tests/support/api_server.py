"""A minimal server of the API for tests of load clients: records what it receives, and streams given frames."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.http_servers import serving


STREAM_ID = "b2f7d7b0-92f5-4c55-9a68-0e7bb7a6a0cc"


class ApiServer:
    """Records the requests that it receives; the answers can be configured."""

    def __init__(self) -> None:
        self.url = ""
        self.event_types: dict[str, dict] = {}
        self.bodies: list[bytes] = []
        self.commits: list[dict] = []
        self.frames: list[bytes] = []
        self.deleted: list[str] = []
        self.keys: list[str | None] = []
        """The idempotency keys of publish requests."""
        self.authorizations: set[str | None] = set()
        self.publish_status = 200
        self.stream_status = 200
        self.closes_after = 0
        """The first publish request that is not answered: from it on connections are closed; 0 for never."""
        self.lock = threading.Lock()
        self.finished = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def api(self) -> ApiServer:
        return self.server.api

    def do_GET(self) -> None:
        if self.path.startswith("/event-types/"):
            definition = self.api.event_types.get(self.path.rpartition("/")[2])
            self._answer(404 if definition is None else 200, definition or {"title": "Not Found"})
        elif self.api.stream_status != 200:
            self._answer(self.api.stream_status, {"detail": "No free slots"})
        else:
            self._stream()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/events"):
            self._publish(body)
        elif self.path.endswith("/cursors"):
            assert self.headers["X-Nakadi-StreamId"] == STREAM_ID
            self.api.commits.append(json.loads(body))
            self._answer(204)
        elif self.path == "/event-types":
            definition = json.loads(body)
            self.api.event_types[definition["name"]] = definition
            self._answer(201, definition)
        else:
            self._answer(201, {"id": "s-1"} | json.loads(body))

    def do_DELETE(self) -> None:
        self.api.deleted.append(self.path)
        self._answer(204)

    def _publish(self, body: bytes) -> None:
        with self.api.lock:
            self.api.bodies.append(body)
            self.api.keys.append(self.headers["Idempotency-Key"])
            number = len(self.api.bodies)
        if self.api.closes_after and number >= self.api.closes_after:
            self.close_connection = True
            return
        self._answer(self.api.publish_status, None if self.api.publish_status == 200 else {"detail": "refused"})

    def _stream(self) -> None:
        self.api.authorizations.add(self.headers["Authorization"])
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("X-Nakadi-StreamId", STREAM_ID)
        self.end_headers()
        for frame in self.api.frames:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(frame), frame))
        self.api.finished.wait()
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, value: object = None) -> None:
        self.api.authorizations.add(self.headers["Authorization"])
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def api_server() -> Iterator[ApiServer]:
    """Serve on a free port of this machine until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    api = server.api = ApiServer()
    api.url = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        try:
            yield api
        finally:
            api.finished.set()
