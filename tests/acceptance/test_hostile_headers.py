"""Headers that are long, many, or both.

Source: reference common#header-limits.
"""

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from rioni.http.connection.framing import HEADERS_BYTES_MAX
from tests.support.waiting import WAIT_S


ONE_BYTES = 16_000


def answer_to(url, headers):
    """The first line of the answer to a request with such headers."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port), timeout=WAIT_S) as sock:
        sock.sendall(f"GET /event-types HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        return sock.makefile("rb").readline()


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("count", [5, 45])
def test_headers_that_are_too_long_together_are_rejected(server, count, at_once):
    """Parsing 45 of them would stop a worker for half a second, and interpreting some for as long again."""
    headers = f"Accept: {'a/b,' * (ONE_BYTES // 4)}\r\n" * count
    with ThreadPoolExecutor(at_once) as clients:
        answers = [clients.submit(answer_to, server.url, headers) for _ in range(at_once)]
        for answer in answers:
            assert answer.result(WAIT_S).startswith(b"HTTP/1.1 431 ")


def test_some_long_headers_are_accepted(server):
    count = HEADERS_BYTES_MAX // ONE_BYTES - 1
    headers = "".join(f"X-Of-My-Own-{number}: {'a' * ONE_BYTES}\r\n" for number in range(count))
    assert answer_to(server.url, headers).startswith(b"HTTP/1.1 200 ")
