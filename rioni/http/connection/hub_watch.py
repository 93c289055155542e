"""Measures for how long one piece of work keeps a worker from all others, and counts its greenlets."""

import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import Event

from rioni.http.metrics.collectors import Metrics


FINE_S = 0.05
"""How finely stalls are measured while there are requests. PERF: 0.02 took 1.2 % of a core of each busy worker."""
IDLE_S = 1.0
"""The same while there are none, as nobody waits. PERF: being woken every 50 ms takes 0.4 % of a core of a worker."""


class HubWatch:
    """Watches the event loop of one worker; for greenlets of its hub only."""

    def __init__(self) -> None:
        self._greenlets = 0
        self._requests = self._begun = 0
        self._work = Event()
        """Set while there are requests, and until a look that has seen none."""
        self._work_since_s = 0.0
        self._longest_s = 0.0

    def count_greenlets(self) -> None:
        """Count the greenlets that start from now on."""
        gevent.Greenlet.add_spawn_callback(self.started)

    def request_begins(self) -> None:
        """Look more often from now on. PERF: 0.3 us."""
        self._requests += 1
        self._begun += 1
        if not self._work.is_set():
            self._work_since_s = time.monotonic()
            self._work.set()

    def request_ends(self) -> None:
        """Look as seldom as before, if it was the only one."""
        self._requests -= 1

    def run(self, metrics: Metrics, connections: Callable[[], int]) -> None:
        """Measure without end; blocks this greenlet only.

        Args:
            metrics: shows what is found.
            connections: returns how many this worker has.
        """
        while True:
            stall_s = self._stall_s()
            metrics.greenlets.set(self._greenlets)
            metrics.connections.set(connections())
            if stall_s > self._longest_s:
                self._longest_s = stall_s
                metrics.hub_stall_seconds.set(stall_s)

    def _stall_s(self) -> float:
        """Sleep; return how late this greenlet is woken: for so long the event loop was blocked."""
        begin_s = time.monotonic()
        if self._work.is_set():
            before = self._begun
            gevent.sleep(FINE_S)
            if not self._requests and self._begun == before:
                self._work.clear()
            return time.monotonic() - begin_s - FINE_S
        if self._work.wait(IDLE_S):
            return time.monotonic() - self._work_since_s
        return time.monotonic() - begin_s - IDLE_S

    def started(self, greenlet: "gevent.Greenlet[..., Any]") -> None:
        """Count a greenlet until it ends."""
        self._greenlets += 1
        greenlet.rawlink(self._ended)

    def _ended(self, _greenlet: "gevent.Greenlet[..., Any]") -> None:
        self._greenlets -= 1
