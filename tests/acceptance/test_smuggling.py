"""Requests that a proxy may parse differently than the broker: none is interpreted leniently (hostile input, H1, H2).

A second request follows each of them. A server that found the end of the first one elsewhere would answer it.

Source: reference common#request-framing.
"""

import re
import socket
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import rows
from tests.support.builders import event_type_body
from tests.support.waiting import WAIT_S


LINE = b"POST /event-types/test.bounds/events HTTP/1.1\r\n"
HOST = b"Host: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked"
NO_CHUNKS = b"0\r\n\r\n"
SECOND = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def bounds(server):
    with server.client() as client:
        client.post("/event-types", json=event_type_body(name="test.bounds"))
    return server


def answers(server, request):
    """The answers to a request and a second one: statuses, the bytes, and whether the connection was closed."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=WAIT_S) as connection:
        connection.sendall(request + SECOND)
        said, closed = b"", False
        while b"scm_source" not in said and not closed:
            piece = connection.recv(65_536)
            said, closed = said + piece, not piece
    return [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d+) ", said)], said, closed


def headers(*lines, body=b"hello", line=LINE, host=HOST):
    return line + host + b"".join(each + b"\r\n" for each in lines) + b"\r\n" + body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    rows(
        ("length and chunks", headers(b"Content-Length: 5", CHUNKED, body=NO_CHUNKS), 400),
        ("chunks and length", headers(CHUNKED, b"Content-Length: 5", body=NO_CHUNKS), 400),
        ("two lengths", headers(b"Content-Length: 5", b"Content-Length: 6"), 400),
        ("the same length twice", headers(b"Content-Length: 5", b"Content-Length: 5"), 400),
        ("a list of lengths", headers(b"Content-Length: 5, 5"), 400),
        ("a length with a plus sign", headers(b"Content-Length: +5"), 400),
        ("a length with a minus sign", headers(b"Content-Length: -5"), 400),
        ("a length with an underscore", headers(b"Content-Length: 0_5"), 400),
        ("a hexadecimal length", headers(b"Content-Length: 0x5"), 400),
        ("an empty length", headers(b"Content-Length: "), 400),
        ("a length of 5,000 digits", headers(b"Content-Length: " + b"9" * 5_000), 400),
        ("xchunked", headers(b"Transfer-Encoding: xchunked", body=NO_CHUNKS), 501),
        ("chunked in quotes", headers(b'Transfer-Encoding: "chunked"', body=NO_CHUNKS), 501),
        ("chunked behind a vertical tab", headers(b"Transfer-Encoding: \x0bchunked", body=NO_CHUNKS), 400),
        ("a space before the colon", headers(b"Transfer-Encoding : chunked", body=NO_CHUNKS), 400),
        ("a folded header", headers(b"Transfer-Encoding:\r\n chunked", body=NO_CHUNKS), 400),
        ("two codings", headers(CHUNKED, CHUNKED, body=NO_CHUNKS), 400),
        ("chunked twice", headers(b"Transfer-Encoding: chunked, chunked", body=NO_CHUNKS), 400),
        ("chunked is not the last coding", headers(b"Transfer-Encoding: chunked, identity", body=NO_CHUNKS), 400),
        ("identity", headers(b"Transfer-Encoding: identity", body=NO_CHUNKS), 400),
        ("gzip, chunked", headers(b"Transfer-Encoding: gzip, chunked", body=NO_CHUNKS), 400),
        (
            "chunks in HTTP/1.0",
            headers(CHUNKED, body=NO_CHUNKS, line=LINE.replace(b"1.1", b"1.0")),
            400,
        ),
        ("bare line feeds", headers(b"Content-Length: 5").replace(b"\r\n", b"\n"), 400),
        ("one bare line feed", headers(b"X: y\nContent-Length: 5"), 400),
        ("a bare carriage return", headers(b"X: y\rContent-Length: 5"), 400),
        ("NUL in a value", headers(b"X: a\0b", b"Content-Length: 5"), 400),
        ("a header without colon", headers(b"Content-Length"), 400),
        ("a space before a header", headers(b" Content-Length: 5"), 400),
        ("a space before the first header", headers(host=b" Host: localhost\r\n"), 400),
        ("two spaces in the first line", headers(line=LINE.replace(b" HTTP", b"  HTTP"), body=b""), 400),
        ("no version", headers(line=b"GET /health\r\n", body=b""), 400),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        ("no Host", headers(b"Content-Length: 5", host=b""), 400),
        ("two Hosts", headers(b"Content-Length: 5", host=HOST * 2), 400),
        ("a Host that is none", headers(b"Content-Length: 5", host=b"Host: a/b c@d\r\n"), 400),
    ),
)
def test_an_ambiguous_request_is_rejected_and_the_connection_closed(bounds, request_bytes, status):
    statuses, _, closed = answers(bounds, request_bytes)
    assert (statuses, closed) == ([status], True)


@pytest.mark.parametrize(
    "body",
    rows(
        ("a prefix", b"0x2\r\n[]\r\n0\r\n\r\n"),
        ("an underscore", b"0_2\r\n[]\r\n0\r\n\r\n"),
        ("a plus sign", b"+2\r\n[]\r\n0\r\n\r\n"),
        ("a minus sign", b"-2\r\n[]\r\n0\r\n\r\n"),
        ("a space in front", b" 2\r\n[]\r\n0\r\n\r\n"),
        ("a space behind", b"2 \r\n[]\r\n0\r\n\r\n"),
        ("no size", b"\r\n[]\r\n0\r\n\r\n"),
        ("no number", b"zz\r\n[]\r\n0\r\n\r\n"),
        ("a bare line feed behind the size", b"2\n[]\r\n0\r\n\r\n"),
        ("a bare line feed behind the chunk", b"2\r\n[]\n0\r\n\r\n"),
        ("nothing behind the chunk", b"2\r\n[]0\r\n\r\n"),
        ("a chunk that is longer than its size", b"2\r\n[1]\r\n0\r\n\r\n"),
        ("an extension with a carriage return", b"2;a\rb\r\n[]\r\n0\r\n\r\n"),
        ("an extension with a line feed", b"2;a\nb\r\n[]\r\n0\r\n\r\n"),
        ("an extension without a name", b"2;=\r\n[]\r\n0\r\n\r\n"),
        ("a bare line feed in the trailers", b"2\r\n[]\r\n0\r\nX: y\n\r\n\r\n"),
        ("a trailer without colon", b"2\r\n[]\r\n0\r\nX y\r\n\r\n"),
        ("a length in the trailers", b"2\r\n[]\r\n0\r\nContent-Length: 5\r\n\r\n"),
    ),
)
def test_bad_chunks_are_a_problem_and_close_the_connection(bounds, body):
    statuses, said, closed = answers(bounds, LINE + HOST + CHUNKED + b"\r\n\r\n" + body)
    assert (statuses, closed) == ([400], True)
    assert b"\r\nConnection: close\r\n" in said
    assert b"The request body is truncated or malformed" in said


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    rows(
        ("a length", headers(b"Content-Length: 2", body=b"[]"), 200),
        ("chunks", headers(CHUNKED, body=b'2;a="b"\r\n[]\r\n0\r\nX: y\r\n\r\n'), 200),
        ("a Host with a port", headers(b"Content-Length: 2", body=b"[]", host=b"Host: [::1]:8080\r\n"), 200),
        ("an empty Host", headers(b"Content-Length: 2", body=b"[]", host=b"Host:\r\n"), 200),
        ("a body that is not read", headers(b"Content-Length: 5", line=b"POST /nope HTTP/1.1\r\n"), 404),
        ("a header that is not the length", headers(b"Content_Length: 5", body=b""), 400),
        (
            "HTTP/2 is not spoken",
            headers(
                b"Connection: Upgrade, HTTP2-Settings",
                b"Upgrade: h2c",
                b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
                b"Content-Length: 2",
                body=b"[]",
            ),
            200,
        ),
    ),
)
def test_an_unambiguous_request_is_answered_and_so_is_the_next_one(bounds, request_bytes, status):
    statuses, _, closed = answers(bounds, request_bytes)
    assert (statuses, closed) == ([status, 200], False)


def test_http_1_0_needs_no_host(bounds):
    request = headers(b"Content-Length: 2", body=b"[]", line=LINE.replace(b"1.1", b"1.0"), host=b"")
    assert answers(bounds, request)[0] == [200]
