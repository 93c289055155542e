"""The server: prepares the data directory, then runs the worker processes under gunicorn until it is told to stop."""

import errno
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import gevent
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.workers.ggevent import GeventWorker
from prometheus_client.multiprocess import mark_process_dead

from rioni import bootstrap
from rioni.config import Config
from rioni.domain.errors import Unavailable
from rioni.http.metrics import MULTIPROCESS_FOLDER


if TYPE_CHECKING:
    from rioni.storage.embedded.data_directory import DataDirectory


P = ParamSpec("P")
T = TypeVar("T")


BACKLOG = 2_048
SWITCH_INTERVAL_S = 0.000_5
"""PERF: a thread that comes back from the disk waits this long for the interpreter; the default is ten times longer."""
HOUSEKEEPING_S = 0.5
"""How soon the streams of a worker that was killed are taken over."""
WATCH_S = 0.02
"""How finely the stalls of the hub are measured."""
WORKER_CONNECTIONS = 10_000
"""Connections that one worker serves at a time; further ones wait in the kernel's backlog."""


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; streams end with a final batch then.

    Raises:
        DataDirectoryError: the data directory can't be used.
        Unavailable: the port is taken or not allowed, or the database can't be reached.
    """
    listener = _listen(config)
    with bootstrap.prepare(config) as directory:
        metrics = directory.scratch / "metrics"
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir()
        os.environ[MULTIPROCESS_FOLDER] = str(metrics)
        _Arbiter(_Application(config, directory, listener)).run()


def _listen(config: Config) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        return socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except OSError as ex:
        where = f"{config.host}:{config.port}"
        if ex.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"{where} is in use by another process. Stop it, or name another port: --port or RIONI_PORT."
            ) from ex
        raise Unavailable(f"{where} can't be listened on: {ex.strerror}. Name another host or port.") from ex


class _Worker(GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """A worker whose sockets have deadlines, and whose streams learn that it is asked to end."""

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        # Between requests the deadline is `keep_alive_s`, which gunicorn sees to.
        sock.settimeout(self.app.config.body_timeout_s)
        try:
            super().handle_request(listener_name, req, sock, addr)
        except TimeoutError as ex:
            # A client that has stopped reading is cut off; gunicorn knows what a reset is, and makes no fuss of it.
            raise ConnectionResetError(errno.ECONNRESET, "the client does not read") from ex
        if sock.fileno() >= 0:
            sock.settimeout(None)

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.app.stop()
        super().handle_exit(sig, frame)

    # Ctrl-C reaches every process of the terminal; leaving is graceful all the same, and the master sees to the end.
    def handle_quit(self, sig: int, frame: Any) -> None:
        self.handle_exit(sig, frame)


class _Arbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master for which SIGINT is as graceful as SIGTERM."""

    def handle_int(self) -> None:
        self.handle_term()


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The application of one `rioni serve`; each worker process puts together its own services."""

    def __init__(self, config: Config, directory: "DataDirectory", listener: socket.socket) -> None:
        self.config = config
        self._directory = directory
        self._listener = listener
        self._worker: bootstrap.Worker | None = None
        super().__init__()

    def load_config(self) -> None:
        config = self.config
        settings = {
            "bind": f"fd://{self._listener.fileno()}",
            "workers": config.workers,
            "worker_class": _Worker,
            "worker_connections": WORKER_CONNECTIONS,
            "keepalive": config.keep_alive_s,
            "graceful_timeout": config.shutdown_s,
            "loglevel": "warning",
            "when_ready": self._announce,
            "child_exit": self._forget_metrics,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Put together the services of this worker; gunicorn calls it in the forked process."""
        pool = gevent.get_hub().threadpool
        home = threading.get_ident()

        def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            # A function that runs in the pool already calls what it needs in place.
            if threading.get_ident() != home:
                return function(*args, **kwargs)
            return pool.apply(function, args, kwargs)

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self._worker = bootstrap.worker(self.config, self._directory, offload)
        gevent.spawn(self._keep_house, self._worker)
        gevent.spawn(self._watch_hub, self._worker)
        return self._worker.app

    @staticmethod
    def _keep_house(worker: bootstrap.Worker) -> None:
        while True:
            gevent.sleep(HOUSEKEEPING_S)
            worker.keep_house()

    @staticmethod
    def _watch_hub(worker: bootstrap.Worker) -> None:
        """Measure how late a greenlet that only sleeps is woken: so long, somebody has not let others run."""
        longest_s = 0.0
        while True:
            begin_s = time.monotonic()
            gevent.sleep(WATCH_S)
            stall_s = time.monotonic() - begin_s - WATCH_S
            if stall_s > longest_s:
                longest_s = stall_s
                worker.metrics.hub_stall_seconds.set(longest_s)

    def stop(self) -> None:
        """Tell the streams of this worker to say goodbye."""
        if self._worker is not None:
            self._worker.stop()

    def _announce(self, _arbiter: Any) -> None:
        host, port = self._listener.getsockname()[:2]
        workers = f"{self.config.workers} worker" + ("s" if self.config.workers > 1 else "")
        sys.stderr.write(f"Rioni serves http://{host}:{port} with {workers}, data in {self.config.data}\n")

    @staticmethod
    def _forget_metrics(_arbiter: Any, worker: Any) -> None:
        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # prometheus_client leaves it out
