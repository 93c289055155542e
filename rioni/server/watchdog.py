"""Detects what hangs in a worker, its event loop or a thread pool, and replaces the process."""

import mmap
import os
import struct
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gevent
import structlog
from gevent.event import Event

from rioni.domain.ports.host import Health
from rioni.http.metrics.collectors import Metrics
from rioni.installation.pools import Pool, Pools, Task
from rioni.storage.threads import native_sleep, start_native_thread


# --- Measures for how long one piece of work keeps a worker from all others, and counts its greenlets ---

FINE_S = 0.05
"""How finely stalls are measured while there are requests. PERF: 0.02 took 1.2 % of a core of each busy worker."""
IDLE_S = 1.0
"""The measuring interval while there are no requests, as nobody waits. PERF: being woken every 50 ms takes 0.4 % of a
core of a worker."""


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
            metrics: receives the results.
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
        """Sleep; return how late this greenlet is woken: the time for which the event loop was blocked."""
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


# --- Detects thread pools without progress, logs where their threads hang, and replaces the worker process ---
#
# Everything that runs in a pool has its own deadlines, shorter than that of the pool. So a server that does not
# answer causes errors, and is not detected here: only threads that do not return long after their deadline are, because
# of a disk or a driver that hangs. Only a new process helps then; of several workers, one at a time is replaced.

GRACE_S = 30.0
"""How long after its deadline a task may still run while all threads of its pool are busy."""

HARD_S = 600.0
"""How long after its deadline a task may still run while other threads of the pool are free."""

FRAMES_MAX = 20
"""Maximum number of stack frames shown, the innermost ones."""

_log = structlog.get_logger("rioni.watchdog")


class _Load(NamedTuple):
    """The load of the pools of a kind."""

    busy: int
    queued: int
    oldest_s: float
    rejected: int


class Watchdog:
    """Watches the thread pools of one process."""

    def __init__(self, pools: Pools, metrics: Metrics, *, grace_s: float = GRACE_S, hard_s: float = HARD_S) -> None:
        """Start watching at the first `check`.

        Args:
            pools: the pools of this process.
            metrics: records the load of the pools.
            grace_s: how long after its deadline a task may run while all threads of its pool are busy.
            hard_s: the same while other threads are free.
        """
        self._pools, self._metrics, self._grace_s, self._hard_s = pools, metrics, grace_s, hard_s
        self._hanging: dict[Pool, list[Task]] = {}
        self._logged: set[Task] = set()
        self._loads: dict[str, _Load] = {}
        """The loads that the metrics show, by kind of pool."""

    @property
    def hangs(self) -> bool:
        """Whether a pool made no progress at the last check."""
        return bool(self._hanging)

    def check(self) -> None:
        """Check all pools; a hanging task is logged once, with its stack. Cheap: call it every second or so."""
        pools = [*self._pools]
        self._measure(pools)
        self._hanging = {pool: tasks for pool in pools if (tasks := self._overdue(pool))}
        hanging = [(pool, task) for pool, tasks in self._hanging.items() for task in tasks]
        for pool, task in hanging:
            if task not in self._logged:
                _log.error("a native thread hangs", pool=pool.name, task=task.name, frames=stack_of(task.thread))
        self._logged = {task for _, task in hanging}

    def health(self) -> Health:
        """Return the health of the pools, for `/livez`."""
        self.check()
        if not self._hanging:
            return Health(detail=f"{sum(len(pool.running) for pool in self._pools)} threads busy")
        reasons, stacks = [], []
        for pool, tasks in self._hanging.items():
            busy = f"{len(pool.running)} of {pool.limits.threads} threads busy"
            reasons.append(f"The pool {pool.name} makes no progress: {busy}, the oldest for {pool.oldest_s():.0f} s.")
            stacks += [f"{pool.name}, {task.name}: {stack_of(task.thread)}" for task in tasks]
        return Health(reason=" ".join(reasons), detail="; ".join(stacks))

    def _overdue(self, pool: Pool) -> list[Task]:
        return pool.overdue(self._grace_s if len(pool.running) >= pool.limits.threads else self._hard_s)

    def _measure(self, pools: Iterable[Pool]) -> None:
        kinds: defaultdict[str, list[Pool]] = defaultdict(list)
        for pool in pools:
            kinds[pool.kind].append(pool)
        for kind, alike in kinds.items():
            load = _Load(
                sum(len(pool.running) for pool in alike),
                sum(pool.gate.queued for pool in alike),
                max(pool.oldest_s() for pool in alike),
                sum(pool.gate.rejected for pool in alike),
            )
            # PERF: most pools of an idle worker do nothing.
            if load == (before := self._loads.get(kind)):
                continue
            self._loads[kind] = load
            self._metrics.pool_busy_threads.labels(kind).set(load.busy)
            self._metrics.pool_queue.labels(kind).set(load.queued)
            self._metrics.pool_oldest_seconds.labels(kind).set(load.oldest_s)
            self._metrics.pool_rejected.labels(kind).inc(load.rejected - (before.rejected if before else 0))


def stack_of(thread: int) -> str:
    """Return the stack of a native thread, the innermost frame first."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, for this purpose
    if frame is None:
        return "not running"
    frames = traceback.extract_stack(frame)[-FRAMES_MAX:]
    return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in reversed(frames))


KILLED = 1
"""Exit code of a process that did not end by itself; gunicorn then starts another one."""

_AT = struct.Struct("d")


class Replacements:
    """Records when a worker was last replaced, for all processes forked from this one."""

    def __init__(self, every_s: float) -> None:
        """Start without a recorded replacement.

        Args:
            every_s: minimum time between two replacements.
        """
        self._every_s = every_s
        self._shared = mmap.mmap(-1, _AT.size)
        _AT.pack_into(self._shared, 0, float("-inf"))

    def allowed(self, now_s: float) -> bool:
        """Whether a worker may be replaced now; if so, records its replacement.

        Args:
            now_s: by the monotonic clock of the machine.
        """
        (last_s,) = _AT.unpack_from(self._shared)
        if now_s - last_s < self._every_s:
            return False
        _AT.pack_into(self._shared, 0, now_s)
        return True


def end_within(seconds: float) -> None:
    """Kill this process if it has not ended by then: a native thread that hangs must not prevent its end."""
    # A native thread: it must end the process even if the hub hangs.
    start_native_thread(_kill, (seconds,))


def _kill(seconds: float) -> None:
    native_sleep(seconds)
    os._exit(KILLED)
