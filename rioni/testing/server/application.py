"""A broker that tests control: as `rioni serve` with one worker, with faults and with time that can be moved."""

import contextlib
import mmap
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import gevent
import msgspec
from gevent.lock import Semaphore
from msgspec import Meta

from rioni.config import logs as logging_setup
from rioni.config.loading import load
from rioni.config.settings import Config
from rioni.domain.errors import Invalid, RioniError
from rioni.server.processes import HOUSEKEEPING_S, Application, serve
from rioni.server.worker import Worker
from rioni.testing.server.faults import BadFault, Fault, Faults, WsgiApp


# --- A clock that tests move ahead ---


class MovableClock:
    """The machine's clocks, moved ahead together. How far is shared with the processes that are forked later."""

    def __init__(self) -> None:
        self._ahead_ms = memoryview(mmap.mmap(-1, 8)).cast("q")

    def advance(self, milliseconds: int) -> None:
        """Move ahead by `milliseconds`."""
        assert milliseconds >= 0, "no broker can deal with time that goes back"
        self._ahead_ms[0] += milliseconds

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self._ahead_ms[0]

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic() + self._ahead_ms[0] / 1_000


# --- Requests of tests over the control socket: one JSON object a line, each answered by one line ---

LINE_BYTES_MAX = 1_000_000


class AdvanceClock(msgspec.Struct, tag="advance", tag_field="do"):
    """Move the time ahead, and do all that is due then."""

    milliseconds: Annotated[int, Meta(ge=0)]


class AddFault(msgspec.Struct, tag="add_fault", tag_field="do"):
    """Let something happen to the next requests."""

    fault: Fault


class ClearFaults(msgspec.Struct, tag="clear_faults", tag_field="do"):
    """Forget the faults that have not happened."""


class DropConnections(msgspec.Struct, tag="drop_connections", tag_field="do"):
    """Close all connections that are open."""


Command = AdvanceClock | AddFault | ClearFaults | DropConnections

decode_command = msgspec.json.Decoder(Command).decode


def line(**members: Any) -> bytes:
    """A line of the protocol."""
    return msgspec.json.encode(members) + b"\n"


DEFAULTS = {
    "host": "127.0.0.1",
    "port": 0,
    "workers": 1,
    # Events expire as soon as their time is over.
    "retention_interval_s": 1,
}
READ_BYTES = 65_536
DROPPED_WITHIN_S = 10.0
"""Seconds that streams may take to see that their connection is gone, usually a second. Events published before that
would count as sent on it, and their partition would wait for a commit."""
LOG_CHARACTERS = 4_000
"""The most characters of its log that are shown when a broker can't begin."""


def run(control: int, folder: str) -> None:
    """Serve until the tests end, or stop this broker; this process must belong to no other group than the broker.

    Args:
        control: file descriptor of the socket that the tests have the other end of.
        folder: is removed at the end.
    """
    log = Path(folder, "log")
    try:
        settings = _first_line(control)
        _write_to(log)
        os.chdir(folder)
        config = _config({**DEFAULTS, "data": Path(folder, "data"), **settings})
        logging_setup.configure(config)
        serve(config, partial(ControlledApplication, control, folder))
    except RioniError as ex:
        os.write(control, line(error=str(ex)))
    except BaseException as ex:  # gunicorn ends with SystemExit
        said = log.read_text()[-LOG_CHARACTERS:] if log.exists() else ""
        os.write(control, line(error=f"The broker ended with {ex!r}. Its log:\n{said}"))
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(settings: Mapping[str, object]) -> Config:
    config = load(environ={}, program=settings).config
    if config.workers != 1:
        raise Invalid("A broker for tests has one worker, which holds all faults and the time.")
    return config


def _first_line(control: int) -> dict[str, Any]:
    """The settings, with which the tests begin."""
    data = b""
    while not data.endswith(b"\n"):
        if not (piece := os.read(control, READ_BYTES)):
            sys.exit(0)
        data += piece
    return msgspec.json.decode(data, type=dict[str, Any])


def _write_to(log: Path) -> None:
    """Let this process, and all that it forks, write their output to a file."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for standard in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(fd, standard)
    os.close(fd)


class ControlledApplication(Application):
    """Serves the application of `rioni serve`, and does what the tests ask for on the control socket."""

    def __init__(self, control: int, folder: str, *args: Any) -> None:
        """Keep the arguments that the workers need.

        Args:
            control: see `run`.
            folder: see `run`.
            args: of the base class.
        """
        self._control, self._folder = control, folder
        self.clock = self._movable = MovableClock()
        self._faults = Faults()
        self._one_at_a_time = Semaphore()
        super().__init__(*args)

    def load(self) -> WsgiApp:
        """Load the application as the base class does; requests meet faults."""
        return self._faults.around(super().load())

    def begun(self, gunicorn_worker: Any) -> None:
        """Listen to the tests from now on."""
        super().begun(gunicorn_worker)
        gevent.spawn(self._obey, gunicorn_worker)

    def announce(self) -> None:
        """Tell the tests the address."""
        super().announce()
        os.write(self._control, line(url=self.url, folder=self._folder))

    def run_background_jobs(self, worker: Worker) -> None:
        """Run the periodic jobs until the worker ends; tests may have them run meanwhile."""
        while not self._leaving.wait(HOUSEKEEPING_S):
            self._run_jobs(worker)

    def _run_jobs(self, worker: Worker) -> None:
        with self._one_at_a_time:
            worker.run_background_jobs()

    def _obey(self, gunicorn_worker: Any) -> None:
        """Do the requests of the tests; they end when they close the socket, or with their process."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._control)) as sock:
            for text in _lines(sock):
                sock.sendall(self._answer(text, gunicorn_worker))
        shutil.rmtree(self._folder, ignore_errors=True)
        os.killpg(0, signal.SIGKILL)

    def _answer(self, text: bytes, gunicorn_worker: Any) -> bytes:
        try:
            return line(ok=self._do(decode_command(text), gunicorn_worker))
        except (BadFault, msgspec.MsgspecError) as ex:
            return line(error=str(ex))

    def _do(self, command: Command, gunicorn_worker: Any) -> int:
        assert self._worker is not None, "it has begun"
        match command:
            case AdvanceClock(milliseconds):
                self._movable.advance(milliseconds)
                self._run_jobs(self._worker)
                self._worker.wake()
                return self._movable.now_ms()
            case AddFault(fault):
                self._faults.add(fault)
                return 0
            case ClearFaults():
                return self._faults.clear()
            case DropConnections():
                found: int = gunicorn_worker.drop_connections(DROPPED_WITHIN_S)
                return found


def _lines(sock: socket.socket) -> Iterator[bytes]:
    data = b""
    while piece := sock.recv(READ_BYTES):
        *complete, data = (data + piece).split(b"\n")
        yield from complete
        if len(data) > LINE_BYTES_MAX:
            return
