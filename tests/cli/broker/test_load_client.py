"""The minimal HTTP client of the load generator."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rioni.cli.broker.load_client import LoadTarget, ResponseReader
from rioni.domain.errors import Invalid


def _chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x;ext=1\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"


@given(st.data(), st.lists(st.binary(min_size=1)))
def test_an_answer_is_parsed_equally_however_its_bytes_arrive(data, pieces):
    body = b"".join(pieces)
    chunked = data.draw(st.booleans())
    if chunked:
        raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(pieces)
    else:
        raw = b"HTTP/1.1 422 Unprocessable Entity\r\ncontent-length:%d\r\n\r\n%s" % (len(body), body)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)))) | {0, len(raw)})
    answer, received = ResponseReader(), []
    for start, end in pairwise(cuts):
        assert not answer.complete
        answer.feed(raw[start:end], received.append)
    assert answer.complete
    assert answer.status == (200 if chunked else 422)
    assert b"".join(received) == body


def test_an_answer_without_a_length_ends_with_the_connection():
    answer, received = ResponseReader(), []
    answer.feed(b"HTTP/1.1 200 OK\r\n\r\nab", received.append)
    answer.feed(b"c", received.append)
    assert not answer.complete
    assert answer.end()
    assert b"".join(received) == b"abc"


def test_a_truncated_answer_is_not_complete():
    answer = ResponseReader()
    answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", lambda _: None)
    assert not answer.end()


def test_an_answer_without_content_is_complete_at_once():
    answer = ResponseReader()
    answer.feed(b"HTTP/1.1 204 No Content\r\n\r\n", lambda _: None)
    assert answer.complete


@pytest.mark.parametrize("raw", [b"nonsense\r\n\r\n", b"x" * 70_000])
def test_an_answer_that_is_not_http_is_rejected(raw):
    with pytest.raises(ValueError, match=r"invalid literal|endless"):
        ResponseReader().feed(raw, lambda _: None)


def test_a_path_in_the_base_url_comes_before_the_path_of_the_request():
    server = LoadTarget("http://[::1]:81/nakadi/")
    assert server.address == ("::1", 81)
    assert server.head("GET", "/health").startswith(b"GET /nakadi/health HTTP/1.1\r\nHost: [::1]:81\r\n")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://localhost", "http://", "http://x:port", "http://[::1"])
def test_an_invalid_base_url_is_named(url):
    with pytest.raises(Invalid, match=r"is not a (base )?URL"):
        LoadTarget(url)
