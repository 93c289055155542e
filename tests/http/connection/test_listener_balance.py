"""How connections are spread over the workers of a real server."""

import contextlib
import os
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rioni.http.connection.listener import ConnectionCounts
from tests.support.server import running_server
from tests.support.waiting import WAIT_S, wait_until


def test_the_least_count_is_that_of_a_worker_that_accepts():
    counts = ConnectionCounts(4)
    assert counts.least() == 0
    counts.set(0, 3)
    assert counts.least() == 3
    counts.set(1, 1)
    assert counts.least() == 1
    counts.leave(1)
    assert counts.least() == 3


def test_numbers_of_workers_are_those_that_no_other_has():
    counts = ConnectionCounts(3)
    assert [counts.free_number(taken) for taken in ((), {0}, {1}, {0, 1}, {0, 1, 2})] == [0, 1, 0, 2, 2]


LISTENING = "0A"


@contextlib.contextmanager
def connected(url, count, pause_s=0.0):
    """Open `count` connections, each of which is answered."""
    address = urlsplit(url)
    with contextlib.ExitStack() as stack:
        sockets = []
        for _ in range(count):
            sockets.append(
                stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=WAIT_S))
            )
            time.sleep(pause_s)
        for each in sockets:
            each.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for each in sockets:
            assert each.recv(65_536).startswith(b"HTTP/1.1 200 ")
        yield sockets


def owned_connections(workers, port):
    """The number of connections of each worker to the port, by the kernel's tables, also of those being closed."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {line[9] for line in lines if line[1].endswith(f":{port:04X}") and line[3] != LISTENING}
    owned = Counter()
    for worker in workers:
        for descriptor in Path(f"/proc/{worker}/fd").iterdir():
            with contextlib.suppress(OSError):
                owned[worker] += descriptor.readlink().name.removeprefix("socket:[").removesuffix("]") in inodes
    return owned


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running_server(tmp_path_factory.mktemp("data") / "data", "--workers", "2") as server:
        wait_until(lambda: len(server.workers()) == 2 and both_accept(server))
        wait_until(lambda: not owned_connections(server.workers(), urlsplit(server.url).port).total())
        yield server


def both_accept(server):
    with connected(server.url, 8):
        return len(+owned_connections(server.workers(), urlsplit(server.url).port)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 0.01])
def test_of_eight_connections_no_worker_of_two_has_more_than_five(server, pause_s):
    """A worker that gets no CPU for longer than `LEAVE_S`, as other tests need it, misses a round or two."""
    port, largest = urlsplit(server.url).port, []
    for _ in range(10):
        with connected(server.url, 8, pause_s):
            owned = owned_connections(server.workers(), port)
            assert sum(owned.values()) == 8
            largest.append(max(owned.values()))
        wait_until(lambda: not owned_connections(server.workers(), port).total())
    assert sum(each <= 5 for each in largest) >= 7, largest


@pytest.mark.slow
def test_connections_that_a_suspended_worker_does_not_accept_go_to_the_other(server):
    suspended, other = server.workers()
    os.kill(suspended, signal.SIGSTOP)
    try:
        with connected(server.url, 40):
            assert owned_connections([other], urlsplit(server.url).port)[other] == 40
    finally:
        os.kill(suspended, signal.SIGCONT)
