"""A server that measures how long requests hold its hub, and how long single calls of C code hold the interpreter.

Times are those of the processor, not of the clock: other processes on the machine do not lengthen them. `GET /-hub`
tells what was longest since it was last asked; `GET /-hub?calls` measures calls from then on, which slows everything.
"""

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import greenlet
import orjson
from gevent import monkey

import rioni.server.processes
from rioni.cli.app import main as run
from rioni.installation.pools import Task


PROGRAM = ("-c", f"from rioni.patches.gevent import patch; patch(); from {__name__} import main; main()")
"""Arguments of Python; those of `rioni serve` follow."""
PATH = "/-hub"
FLOOR_STEPS = 200_000
"""PERF: a loop with this many steps takes about 10 ms."""
HELD_LOOPS = 5
"""For which `GET /-hub?hold` holds the hub."""
LOOK_S = 0.002
NOTED_NS = 2_000_000
"""Shorter ones have no stack."""
RELEASING = ("acquire", "execute", "executemany", "fetchall", "fsync", "fdatasync", "commit", "do_handshake", "read")
"""Calls that let other threads run while they take long, or wait."""


class HubWatch:
    """Measures a worker; create it in the thread of its hub."""

    def __init__(self) -> None:
        self._thread = monkey.get_original("_thread", "get_ident")()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._seen = ""
        self._locals = monkey.get_original("_thread", "_local")()
        self.of_calls = False
        """Whether calls are measured."""
        self.reset()

    def install(self) -> None:
        """Watch from now on."""
        greenlet.settrace(self._switched)
        call = Task.__call__

        def watched(task: Task, pool: Any) -> Any:
            sys.setprofile(self._profiled if self.of_calls else None)
            try:
                return call(task, pool)
            finally:
                sys.setprofile(None)

        Task.__call__ = watched
        monkey.get_original("_thread", "start_new_thread")(self._look, ())

    def reset(self) -> None:
        """Forget what was measured, also of the greenlet that runs now."""
        self._since_ns = time.clock_gettime_ns(self._clock)
        self.held_ns, self.stack = 0, ""
        self.call_ns, self.call = 0, ""

    def held_until_now_ns(self) -> int:
        """For how long the hub was held at most; it need not have switched since the request before."""
        return max(self.held_ns, time.clock_gettime_ns(self._clock) - self._since_ns)

    def _switched(self, _event: str, _greenlets: tuple[Any, Any]) -> None:
        now_ns = time.clock_gettime_ns(self._clock)
        if (held_ns := now_ns - self._since_ns) > self.held_ns:
            self.held_ns, self.stack = held_ns, self._seen
        self._seen = ""
        self._since_ns = now_ns

    def _look(self) -> None:
        """Note where the hub's thread is, whenever it has not switched for long."""
        sleep = monkey.get_original("time", "sleep")
        while True:
            sleep(LOOK_S)
            if time.clock_gettime_ns(self._clock) - self._since_ns > NOTED_NS and not self._seen:
                self._seen = _stack(sys._current_frames().get(self._thread))

    def _profiled(self, frame: FrameType, event: str, argument: Any) -> None:
        now_ns = time.thread_time_ns()
        noted = self._locals
        if event == "c_return" and (begun := getattr(noted, "begun_ns", 0)):
            name = getattr(argument, "__qualname__", str(argument))
            if now_ns - begun > self.call_ns and name.rpartition(".")[2] not in RELEASING:
                self.call_ns, self.call = now_ns - begun, f"{name} < {_stack(frame)}"
        noted.begun_ns = time.thread_time_ns() if event == "c_call" else 0


def _stack(frame: FrameType | None) -> str:
    """The innermost calls."""
    frames = [] if frame is None else traceback.extract_stack(frame)[-6:]
    return " < ".join(f"{each.filename.rpartition('/')[2]}:{each.lineno} {each.name}" for each in reversed(frames))


def floor_ns() -> int:
    """The time that a fixed loop takes on this machine."""
    begin_ns, total = time.thread_time_ns(), 0
    for number in range(FLOOR_STEPS):
        total += number * number
    return time.thread_time_ns() - begin_ns


Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def around(app: Wsgi, watch: HubWatch) -> Wsgi:
    """The application with a path that tells what was measured."""

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return app(environ, start_response)
        watch.of_calls |= environ["QUERY_STRING"] == "calls"
        held_ms = watch.held_until_now_ns() / 1e6
        floor_ms = floor_ns() / 1e6
        body = orjson.dumps(
            {
                "held_ms": held_ms,
                "stack": watch.stack,
                "call_ms": watch.call_ns / 1e6,
                "call": watch.call,
                "floor_ms": floor_ms,
            }
        )
        watch.reset()
        if environ["QUERY_STRING"] == "hold":
            for _ in range(HELD_LOOPS):
                floor_ns()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    return application


def main() -> None:
    """Run the command line with a watched worker."""

    class Watched(rioni.server.processes.Application):
        def load(self) -> Wsgi:
            app = super().load()
            watch = HubWatch()
            watch.install()
            return around(app, watch)

    rioni.server.processes.Application = Watched
    run()
