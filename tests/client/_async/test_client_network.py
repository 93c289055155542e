"""The ways from clients to a broker: TLS, and proxies that the environment names."""

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from rioni.client import ConnectionFailed
from tests.support import certificates
from tests.support.http_servers import serving
from tests.support.scripted_server import Answer, scripted_server
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


BROKER = "broker"
"""A name in the certificate that only the proxy knows."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """The certificate of an authority, and a context of a server that has one of its own from it."""
    folder = tmp_path_factory.mktemp("certificates")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificates.authority().issue(folder))
    return certificates.authority().write(folder), context


@pytest.fixture(params=["http", "https"])
def server(request, authority):
    with scripted_server(authority[1] if request.param == "https" else None) as server:
        yield server


@pytest.fixture
def proxy(monkeypatch):
    """A proxy that the environment names."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with http_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.removeprefix("http://"))
        yield proxy


@pytest.fixture
def asked(make_client, server, authority):
    """Makes requests; returns how many came to the server."""

    def ask(host=BROKER, **options):
        server.script(Answer(200, []))
        url = server.url.replace("127.0.0.1", host)
        with make_client(url, ca_certificate=authority[0], attempts=1, **options) as client:
            assert client.storages.list() == client.storages.list() == []
        return len(server.requests)

    return ask


def test_requests_go_through_the_proxy_that_the_environment_names(asked, proxy, server):
    assert asked() == 2
    there = server.url.partition("//")[2].replace("127.0.0.1", BROKER)
    tunnel, forwarded = [f"CONNECT {there}"], [f"GET http://{there}/storages"] * 2
    assert proxy.requested == (tunnel if server.url.startswith("https") else forwarded)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_broker_of_this_machine_is_asked_without_the_proxy(asked, proxy, host):
    assert asked(host) == 2
    assert proxy.requested == []


def test_one_proxy_may_be_named_for_all(asked, proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy.url)
    monkeypatch.delenv("HTTP_PROXY")
    monkeypatch.delenv("HTTPS_PROXY")
    asked()
    assert proxy.requested


def test_a_proxy_that_is_not_there_is_a_failed_connection(asked, proxy, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    with pytest.raises(ConnectionFailed, match=r"through the proxy http://127\.0\.0\.1:1 does not answer") as caught:
        asked()
    assert not caught.value.sent


def test_a_server_whose_certificate_nobody_trusts_gets_no_request(make_client, authority):
    with scripted_server(authority[1]) as server:
        with (
            make_client(server.url, attempts=1) as client,
            pytest.raises(ConnectionFailed, match="CERTIFICATE") as caught,
        ):
            client.storages.list()
        assert (server.requests, caught.value.sent) == ([], False)
