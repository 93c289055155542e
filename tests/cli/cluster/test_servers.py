"""Pausing servers of a local cluster."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rioni.cli.cluster.servers import Server
from tests.support.waiting import wait_until


BUSY = """
import threading
def write(number):
    with open(f"{number}.txt", "w", buffering=1) as file:
        while True:
            file.write("a line\\n")
for number in range(4):
    threading.Thread(target=write, args=[number]).start()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Server]:
    server = Server("busy", [sys.executable, "-c", BUSY], tmp_path, lambda: len(list(tmp_path.glob("?.txt"))) == 4)
    server.start()
    server.wait()
    yield server
    server.kill()


def written(server: Server) -> int:
    return sum(path.stat().st_size for path in server.folder.glob("?.txt"))


def test_a_paused_server_does_nothing_once_pause_has_returned(busy: Server):
    for _ in range(3):
        busy.pause()
        before = written(busy)
        assert busy.alive
        assert written(busy) == before
        busy.resume()
        wait_until(lambda: written(busy) > before)  # noqa: B023 - called in this turn


def test_a_server_that_has_ended_can_be_paused(busy: Server):
    busy.kill()
    busy.pause()
    assert not busy.alive
