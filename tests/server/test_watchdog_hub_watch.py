"""How the stalls of a worker's event loop are measured."""

import contextlib
import time

import gevent
import pytest
from gevent.queue import Empty, Queue

from rioni.http.metrics.collectors import Metrics, total
from rioni.server.watchdog import FINE_S, IDLE_S, HubWatch
from tests.support.waiting import PAUSE_S, WAIT_S, Deadline


HELD_S = 4 * FINE_S


class Watched:
    """A hub that is watched, and when it was looked at."""

    def __init__(self) -> None:
        self.watch, self.metrics = HubWatch(), Metrics()
        self._looks_s: Queue[float] = Queue()
        self.runner = gevent.spawn(self.watch.run, self.metrics, self._connections)
        gevent.sleep(0)

    def stall_s(self) -> float:
        return total(self.metrics.hub_stall_seconds)

    @property
    def looks(self) -> int:
        """How many there were that nobody waited for."""
        return self._looks_s.qsize()

    def look(self, count: int = 1) -> list[float]:
        """Wait for `count` further looks at the hub, and return their times."""
        deadline = Deadline(f"{count} looks at the hub")
        seen: list[float] = []
        while len(seen) < count:
            with contextlib.suppress(Empty):
                seen.append(self._looks_s.get(timeout=PAUSE_S))
            deadline.check(lambda: f"{len(seen)} looks")
        return seen

    def _connections(self) -> int:
        self._looks_s.put(time.monotonic())
        return 3


@pytest.fixture
def watched(monkeypatch):
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
    watched = Watched()
    yield watched
    watched.runner.kill()
    gevent.Greenlet.remove_spawn_callback(watched.watch.started)


def hold():
    """Keep the hub from all others."""
    end_s = time.monotonic() + HELD_S
    while time.monotonic() < end_s:
        pass


def test_the_first_piece_of_work_of_a_request_is_measured(watched):
    watched.watch.request_begins()
    hold()
    watched.watch.request_ends()
    watched.look()
    assert watched.stall_s() >= HELD_S


def test_later_pieces_of_its_work_are_measured(watched):
    watched.watch.request_begins()
    watched.look(2)
    hold()
    watched.look()
    assert watched.stall_s() >= HELD_S - FINE_S


def test_the_work_of_a_request_soon_after_another_one_is_measured(watched):
    watched.watch.request_begins()
    watched.watch.request_ends()
    watched.look()
    watched.watch.request_begins()
    hold()
    watched.watch.request_ends()
    watched.look()
    assert watched.stall_s() >= HELD_S - FINE_S


def test_the_hub_is_looked_at_often_while_there_are_requests_and_seldom_without(watched):
    watched.watch.request_begins()
    watched.watch.request_begins()
    watched.watch.request_ends()
    _, *often_s = watched.look(3)
    watched.watch.request_ends()
    *_, before_s, seldom_s = watched.look(3)
    assert often_s[1] - often_s[0] >= 0.9 * FINE_S
    assert seldom_s - before_s >= 0.9 * IDLE_S
    assert total(watched.metrics.connections) == 3


def test_requests_that_follow_each_other_wake_it_no_more_often(watched):
    begin_s = time.monotonic()
    for _ in range(100):
        watched.watch.request_begins()
        watched.watch.request_ends()
        gevent.sleep(0)
    assert watched.looks <= 2 + (time.monotonic() - begin_s) / FINE_S


def test_greenlets_are_counted_while_they_live(watched):
    watched.watch.count_greenlets()
    other = gevent.spawn(gevent.sleep, WAIT_S)
    watched.look()
    assert total(watched.metrics.greenlets) == 1
    other.kill()
    watched.look()
    assert total(watched.metrics.greenlets) == 0
