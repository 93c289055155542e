"""An HTTP proxy as companies have it: forwards requests, and opens tunnels for HTTPS.

It knows all names as this machine, so that tests need no name that is not of this machine, for which no proxy is asked.
"""

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from tests.support.http_servers import serving
from tests.support.waiting import WAIT_S


TIMEOUT_S = 60


class HttpProxy:
    """Listens at `url`, and remembers what it was asked for, as in the first lines of requests."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requested: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: HttpProxy

    def forward(self) -> None:
        self.proxy.requested.append(f"{self.command} {self.path}")
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=WAIT_S)
        with contextlib.closing(server):
            server.request(self.command, parts._replace(scheme="", netloc="").geturl(), body, dict(self.headers))
            answer = server.getresponse()
            content = answer.read()
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = forward  # noqa: N815 - names of the base class

    def do_CONNECT(self) -> None:
        self.proxy.requested.append(f"CONNECT {self.path}")
        self.close_connection = True
        _, _, port = self.path.rpartition(":")
        with socket.create_connection(("127.0.0.1", int(port)), TIMEOUT_S) as server:
            self.send_response_only(200)
            self.end_headers()
            back = threading.Thread(target=_copy, args=(server, self.connection), daemon=True)
            back.start()
            _copy(self.connection, server)
            back.join()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def http_proxy() -> Iterator[HttpProxy]:
    """Run such a proxy on a free port until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    proxy = HttpProxy(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"proxy": proxy})
    with serving(server):
        yield proxy
