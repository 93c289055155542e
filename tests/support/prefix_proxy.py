"""A reverse proxy that serves a broker below a path, next to other applications, as nginx and Traefik do."""

import contextlib
import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.http_servers import serving
from tests.support.waiting import WAIT_S


READ_BYTES = 65_536
OTHERS = "Another application of this host answers here."


class PrefixProxy:
    """Listens at `url`, which has no path; requests for what is not the broker's are noted in `strayed`."""

    def __init__(self, url: str, prefix: str) -> None:
        self.url, self.prefix = url, prefix
        self.strayed: list[str] = []

    @property
    def broker_url(self) -> str:
        """The URL of the broker behind the proxy."""
        return self.url + self.prefix


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: PrefixProxy
    port: int
    source: tuple[str, int]
    strips: bool
    says: bool

    def forward(self) -> None:
        prefix = self.proxy.prefix
        if not self.path.startswith(prefix) or self.path[len(prefix) :][:1] not in ("", "/", "?"):
            self.proxy.strayed.append(f"{self.command} {self.path}")
            self._answer(404, OTHERS.encode())
            return
        rest = self.path[len(prefix) :]
        path = (rest if rest.startswith("/") else f"/{rest}") if self.strips else self.path
        # The browser's `Host` stays, as `proxy_set_header Host $http_host` has it.
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        if self.says:
            headers["X-Forwarded-Prefix"] = prefix
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S, source_address=self.source)
        with contextlib.closing(server), contextlib.suppress(ConnectionError):
            server.request(self.command, path, body or None, headers)
            self._pass_on(server.getresponse())

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = forward  # noqa: N815 - names of the base class

    def _pass_on(self, answer: http.client.HTTPResponse) -> None:
        """Send an answer as it comes; the end of the connection is its end."""
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        while data := answer.read1(READ_BYTES):
            self.wfile.write(data)
            self.wfile.flush()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def prefix_proxy(
    port: int, prefix: str, *, strips: bool, says: bool, address: str = "127.0.0.1"
) -> Iterator[PrefixProxy]:
    """Run such a proxy on a free port until the end of the block.

    Args:
        port: of the broker, at 127.0.0.1.
        prefix: the path below which the broker is.
        strips: whether the proxy removes it from the paths of requests.
        says: whether it sends it in the header `X-Forwarded-Prefix`.
        address: of the proxy, as the broker sees it.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    proxy = PrefixProxy(f"http://127.0.0.1:{server.server_port}", prefix)
    known = {"proxy": proxy, "port": port, "source": (address, 0), "strips": strips, "says": says}
    server.RequestHandlerClass = type("Handler", (_Handler,), known)
    with serving(server):
        yield proxy
