"""Requests whose heads are found among known ones are parsed as gunicorn parses them."""

from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.message import Request
from gunicorn.http.unreader import IterUnreader
from hypothesis import given
from hypothesis import strategies as st

from rioni.http.connection import framing
from rioni.http.connection.framing import BoundedRequest, KnownHeads, check_host, create


CLIENT, SERVER = ("127.0.0.1", 50_000), ("127.0.0.1", 8080)
HEAD = b"POST /event-types/orders/events?a=b HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nContent-Length: %s\r\n\r\n"


class _Reference(Request):
    """gunicorn's own parser with the check of the host, and no memory."""

    known_head = None

    def parse(self, unreader):
        rest = super().parse(unreader)
        check_host(self)
        return rest


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(BoundedRequest, "_known_heads", KnownHeads())


def config() -> Any:
    made = Config()
    for name, value in {"http_parser": "python", "forwarder_headers": "SPAN_CTX", "forwarded_allow_ips": "*"}.items():
        made.set(name, value)
    made.set("secure_scheme_headers", {})
    return made


CONFIG = config()


def outcome(kind: type[Request], sent: bytes) -> Any:
    """The parser's result and the WSGI environment; or the error."""
    try:
        req = kind(CONFIG, IterUnreader(iter([sent])), CLIENT)
        req.proxy_protocol_info = {}
        sock = SimpleNamespace(send=bytes)
        make = create if kind is BoundedRequest else wsgi.create
        environ = make(req, sock, CLIENT, SERVER, CONFIG)[1]
    except Exception as ex:  # noqa: BLE001 - all are compared
        return type(ex), str(ex)
    for name in ("wsgi.errors", "wsgi.early_hints", "gunicorn.socket"):
        environ.pop(name, None)
    body = environ.pop("wsgi.input")
    parsed = [getattr(req, name) for name in ("method", "uri", "path", "query", "fragment", "version", "headers")]
    return parsed, environ, req.should_close(), type(body.reader), body.read()


def is_known(sent: bytes) -> bool:
    return BoundedRequest(CONFIG, IterUnreader(iter([sent])), CLIENT).known_head is not None


NAMES = (
    b"Content-Length",
    b"content-length",
    b"X-Flow-Id",
    b"x-flow-id",
    b"Host",
    b"Connection",
    b"Expect",
    b"Span_Ctx",
)
VALUES = (
    b"",
    b"0",
    b"3",
    b"007",
    b"+3",
    b"a b",
    b"\tx",
    b"x\0",
    b"\xff",
    b"localhost",
    b"close",
    b"100-continue",
    b"y" * 70,
)
LINES = st.builds(
    lambda name, colon, value: name + colon + value,
    st.sampled_from(NAMES),
    st.sampled_from((b": ", b":", b" : ", b":  ")),
    st.sampled_from(VALUES),
)
FIRST = st.sampled_from(
    (b"POST /a HTTP/1.1", b"GET /a?b#c HTTP/1.0", b"\r\nGET /a HTTP/1.1", b"GET  /a HTTP/1.1", b"a")
)
HEADS = st.builds(lambda first, lines: b"\r\n".join([first, *lines]), FIRST, st.lists(LINES, max_size=5))


@given(st.lists(HEADS, min_size=1, max_size=6), st.sampled_from((b"\r\n\r\n", b"\r\n\r\nabcdef", b"\r\n", b"\n\n")))
def test_every_request_is_parsed_as_without_known_heads(heads, end):
    for head in heads * 2:
        assert outcome(BoundedRequest, head + end) == outcome(_Reference, head + end)


def test_the_values_that_vary_are_those_of_the_request():
    for length, flow_id in ((3, b"one"), (5, b"other"), (0, b"x")):
        head = (HEAD % b"%d" % length).replace(b"\r\n\r\n", b"\r\nX-Flow-Id: %s\r\n\r\n" % flow_id)
        parsed, environ, *_, body = outcome(BoundedRequest, head + b"12345")
        assert (environ["CONTENT_LENGTH"], environ["HTTP_X_FLOW_ID"]) == (str(length), flow_id.decode())
        assert ("CONTENT-LENGTH", str(length)) in parsed[-1]
        assert body == b"12345"[:length]


def test_an_invalid_length_is_refused_as_in_an_unknown_head():
    assert is_known(HEAD % b"3")
    assert outcome(BoundedRequest, HEAD % b"3x") == outcome(_Reference, HEAD % b"3x")


def test_requests_do_not_share_what_they_can_change():
    assert is_known(HEAD % b"3")
    first, second = (BoundedRequest(CONFIG, IterUnreader(iter([HEAD % b"3"])), CLIENT) for _ in range(2))
    first.headers.clear()
    assert second.headers
    outcome(BoundedRequest, HEAD % b"3")
    environs = []
    for _ in range(2):
        second.proxy_protocol_info = {}
        environs.append(create(second, None, CLIENT, SERVER, CONFIG)[1])
    environs[0].clear()
    assert environs[1]


def test_the_number_and_the_length_of_known_heads_are_bounded(monkeypatch):
    monkeypatch.setattr(framing, "HEADS_MAX", 2)
    sent = [(HEAD % b"3").replace(b"orders", b"orders-%d" % number) for number in range(3)]
    assert all(map(is_known, sent))
    assert len(BoundedRequest._known_heads._heads) == 2
    assert not is_known((HEAD % b"3").replace(b"*/*", b"a" * framing.HEAD_BYTES_MAX))
