"""Bodies that are large, compressed beyond measure, withheld, or sent without the right to publish."""

import contextlib
import gzip
import re
import select
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import zstandard

from rioni.domain.limits import Limits
from tests.acceptance.conftest import event
from tests.support.builders import event_type_body
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


WORKER_BYTES, CLIENT_BYTES = 24_000_000, 16_000_000
HOLDERS = 2
"""Bodies of 12 MB of which a client may hold a part at a time: one whole, and the beginning of another."""
GROWTH_BYTES_MAX = 250_000_000
"""Without bounds one of these attacks takes more than a gigabyte, and three at once three."""


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    """A broker of one worker with a low limit of bytes of bodies in memory, with an event type `test.attacked`."""
    limits = {"BODIES_BYTES_MAX": WORKER_BYTES, "BODIES_BYTES_PER_CLIENT_MAX": CLIENT_BYTES}
    environment = {f"RIONI_{name}": str(value) for name, value in limits.items()}
    folder = tmp_path_factory.mktemp("attacked")
    with running_server(folder / "data", "--workers", "1", environment=environment) as server:
        with server.client() as client:
            for name in ("test.attacked", "test.blocked"):
                assert client.post("/event-types", json=event_type_body(name=name)).status_code == 201
            assert client.put("/settings/blacklist/PRODUCER_ET/test.blocked").status_code == 204
        yield server


def memory_bytes(server, member):
    (pid,) = server.workers()
    (kilobytes,) = re.findall(rf"{member}:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


def publish(server, body, **headers):
    path = f"{server.url}/event-types/test.attacked/events"
    return httpx.post(path, content=body, headers={"Content-Type": "application/json", **headers}, timeout=WAIT_S)


def serves_others(server):
    assert httpx.get(f"{server.url}/health", timeout=WAIT_S).text == "OK"
    # Without a token a client is known by its address, and the attackers may hold all that theirs has.
    with server.client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as client:
        assert client.post("/event-types/test.attacked/events", json=[event()]).status_code == 200


def lists(size, events=1):
    """A batch of that many bytes, nearly all of them empty lists."""
    one = b'{"a":[%b[]]}' % (b"[]," * (size // events // 3))
    return b"[%b]" % b",".join([one] * events)


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize(
    ("size", "events", "coding"),
    [(14_000_000, 14, ""), (14_000_000, 1, "gzip"), (140_000_000, 18, "gzip"), (140_000_000, 18, "zstd")],
)
def test_nested_lists_are_rejected_before_they_take_memory(attacked, size, events, coding, at_once):
    """Reference publishing#batch-limits, common#content-encoding."""
    body = lists(size, events)
    if coding:
        body = gzip.compress(body) if coding == "gzip" else zstandard.compress(body)
    before = memory_bytes(attacked, "VmRSS")
    headers = {"Content-Encoding": coding} if coding else {}
    with ThreadPoolExecutor(at_once) as clients:
        answers = [clients.submit(publish, attacked, body, **headers) for _ in range(at_once)]
        serves_others(attacked)
        for answer in answers:
            try:
                response = answer.result(WAIT_S)
            except httpx.TransportError:  # the broker has answered and closed the connection before all of it was sent
                continue
            assert response.status_code in (413, 429, 503), response.text[:200]
            assert response.status_code == 413 or response.headers["Retry-After"]
    assert memory_bytes(attacked, "VmHWM") - before < GROWTH_BYTES_MAX
    wait_until(lambda: memory_bytes(attacked, "VmRSS") - before < GROWTH_BYTES_MAX / 5)


@pytest.mark.parametrize("connections", [6, 60])
def test_clients_that_withhold_the_end_of_a_body_use_no_more_than_their_share(attacked, connections):
    """Reference common#bodies-in-flight."""
    compressed = gzip.compress(b'[{"a":"%b"}]' % (bytes(48 + number % 7 for number in range(1_000)) * 12_000), 1)
    head = (
        "POST /event-types/test.attacked/events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Encoding: gzip\r\nContent-Length: {len(compressed)}\r\n\r\n"
    )
    before = memory_bytes(attacked, "VmRSS")
    address = httpx.URL(attacked.url)
    with contextlib.ExitStack() as opened:
        sockets = []
        for _ in range(connections):
            sock = opened.enter_context(socket.create_connection((address.host, address.port), timeout=WAIT_S))
            with contextlib.suppress(OSError):
                sock.sendall(head.encode() + compressed[:-2_000])
            sockets.append(sock)
        # All but the few whose bytes fit are answered at once, although none of them has sent all of its body.
        waiting = set(sockets)
        wait_until(lambda: waiting.difference_update(readable(waiting)) or len(waiting) <= HOLDERS)
        assert {first_line(sock) for sock in set(sockets) - waiting} == {b"HTTP/1.1 429 Too Many Requests"}
        assert memory_bytes(attacked, "VmHWM") - before < GROWTH_BYTES_MAX
    wait_until(lambda: publish(attacked, b"[%b]" % (b" " * 5_000_000)).status_code == 200)
    serves_others(attacked)


def readable(sockets):
    return select.select(list(sockets), [], [], 0)[0]


def first_line(sock):
    received = b""
    while b"\r\n" not in received:
        received += sock.recv(1_000) or b"closed\r\n"
    return received.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("name", "length", "status"),
    [
        ("test.nope", "Content-Length: 40000000", b"404 Not Found"),
        ("test.nope", "Content-Length: 100\r\nContent-Encoding: gzip", b"404 Not Found"),
        ("test.nope", "Transfer-Encoding: chunked", b"404 Not Found"),
        ("test.blocked", "Content-Length: 40000000", b"403 Forbidden"),
    ],
)
def test_a_long_body_of_a_client_without_the_right_to_publish_is_not_read(attacked, name, length, status):
    """Reference publishing#large-bodies."""
    address = httpx.URL(attacked.url)
    with socket.create_connection((address.host, address.port), timeout=WAIT_S) as sock:
        head = f"POST /event-types/{name}/events HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n"
        sock.sendall(head.encode())
        assert first_line(sock) == b"HTTP/1.1 " + status


@pytest.mark.parametrize("at_once", [1, 3])
@pytest.mark.parametrize("filler", [b"\x00\x00\x00\xff\xff", b"garbage"])
def test_reading_an_endless_compressed_body_stops(attacked, filler, at_once):
    """Neither input that inflates to nothing nor data behind the compressed part is read for ever.

    Source: reference common#content-encoding.
    """
    beginning = gzip.compress(b"[]") if filler == b"garbage" else gzip.compress(b"")[:10]
    with ThreadPoolExecutor(at_once) as clients:
        answers = [clients.submit(send_without_end, attacked, beginning, filler * 20_000) for _ in range(at_once)]
        assert {answer.result(WAIT_S) for answer in answers} <= {b"HTTP/1.1 413", b"HTTP/1.1 400"}
    serves_others(attacked)


def send_without_end(server, beginning, more):
    """Send chunks until there is an answer; return the beginning of it."""
    address = httpx.URL(server.url)
    with socket.create_connection((address.host, address.port), timeout=WAIT_S) as sock:
        head = (
            "POST /event-types/test.attacked/events HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        sock.sendall(head.encode() + b"%x\r\n%b\r\n" % (len(beginning), beginning))
        for _ in range(Limits().body_bytes_max * 2 // len(more)):
            if select.select([sock], [], [], 0)[0]:
                return sock.recv(12)
            sock.sendall(b"%x\r\n%b\r\n" % (len(more), more))
        return b"no answer"
