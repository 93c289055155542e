import http.server
import threading

import pytest

from rioni.domain.errors import TokensUnavailable
from rioni.storage.tokens import token_servers
from tests.support.waiting import WAIT_S


TOKEN = "s3cret-token"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.seen.append((self.path, self.headers["Authorization"]))
        self.server.answer(self)

    def log_message(self, *args):
        pass


@pytest.fixture
def serve():
    """Starts a server that answers with a function; returns its URL and the requests that it gets."""
    started = []

    def serve(answer):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.answer, server.seen = answer, []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        started.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", server.seen

    yield serve
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


def whole(status, body, **headers):
    def answer(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_a_request_is_sent_with_its_headers_and_answered(serve):
    url, seen = serve(whole(200, b"{}"))
    assert token_servers.get(f"{url}/info?x=1", {"Authorization": f"Bearer {TOKEN}"}) == (200, b"{}")
    assert seen == [("/info?x=1", f"Bearer {TOKEN}")]


def test_redirects_are_not_followed_so_that_no_token_goes_elsewhere(serve):
    other, seen = serve(whole(200, b"{}"))
    url, _ = serve(whole(302, b"", Location=other))
    assert token_servers.get(url, {"Authorization": f"Bearer {TOKEN}"}).status == 302
    assert not seen


def trickle(handler):
    """A server that sends for ever, slowly, but never so slowly that it seems dead."""
    handler.wfile.write(b"HTTP/1.0 200 OK\r\n")
    while not handler.server.over.wait(0.01):
        try:
            handler.wfile.write(b"X: y\r\n")
        except OSError:
            return


def trickling_body(handler):
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while not handler.server.over.wait(0.01):
        try:
            handler.wfile.write(b" ")
        except OSError:
            return


def silent(handler):
    handler.server.over.wait(WAIT_S)


@pytest.mark.parametrize("answer", [trickle, trickling_body, silent])
def test_a_server_that_takes_too_long_is_cut_off(serve, monkeypatch, answer):
    monkeypatch.setattr(token_servers, "DEADLINE_S", 0.2)
    over = threading.Event()

    def started(handler):
        handler.server.over = over
        answer(handler)

    url, _ = serve(started)
    try:
        with pytest.raises(TokensUnavailable) as caught:
            token_servers.get(url, {"Authorization": f"Bearer {TOKEN}"})
    finally:
        over.set()
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        whole(200, b" " * (token_servers.ANSWER_BYTES_MAX + 1)),
        whole(200, b"{}", **{"Content-Length": "100"}),
        lambda handler: handler.wfile.write(b"\x00\x01\x02\r\n\r\n"),
        lambda _handler: None,
    ],
    ids=["too large", "too short", "no HTTP", "nothing"],
)
def test_an_invalid_answer_is_an_error_that_shows_no_token(serve, answer):
    url, _ = serve(answer)
    with pytest.raises(TokensUnavailable) as caught:
        token_servers.get(url, {"Authorization": f"Bearer {TOKEN}"})
    assert TOKEN not in str(caught.value)


def test_an_unreachable_server_is_an_error(serve):
    with pytest.raises(TokensUnavailable, match=r"127.0.0.1 can't be asked about tokens: ConnectionRefusedError"):
        token_servers.get("http://127.0.0.1:1/", {})


@pytest.mark.parametrize(
    ("url", "usable"),
    [
        ("https://issuer.example/keys?x=1", True),
        ("https://issuer.example:8443", True),
        ("http://localhost:9021/tokeninfo", True),
        ("http://127.0.0.2/", True),
        ("http://[::1]:80/", True),
        ("http://issuer.example/keys", False),
        ("http://localhost.issuer.example/", False),
        ("https://user:password@issuer.example/", False),
        ("https://issuer.example/#keys", False),
        ("https:///keys", False),
        ("https://issuer.example:x/", False),
        ("https://[::1/", False),
        ("file:///etc/passwd", False),
        ("issuer.example", False),
        ("", False),
    ],
)
def test_tokens_are_sent_unencrypted_only_to_this_machine(url, usable):
    assert (token_servers.why_unusable(url) is None) == usable
