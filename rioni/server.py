"""The server: prepares the data directory, then runs the worker processes under gunicorn until it is told to stop."""

import errno
import gc
import mmap
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import gevent
import gevent.event
import structlog
from gevent import monkey
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers.ggevent import GeventWorker
from prometheus_client.multiprocess import mark_process_dead

from rioni.bootstrap.preparation import prepare
from rioni.bootstrap.worker import Worker, worker
from rioni.config import Config
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.ports import Offload
from rioni.http.authentication import TOKEN_CHARACTERS_MAX
from rioni.http.deadlines import Deadlines, PacedSocket
from rioni.http.framing import ClosingReader, check_host
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
RETRY_S = 1.0
"""How soon another worker is started after one that could not begin."""
RETRIED = 1
"""The exit code of a worker that could not begin; with gunicorn's own for that it would end all others."""
HOUSEKEEPING_JOIN_S = 5.0
"""How long a worker that ends waits for what is being done in the house."""
WATCH_S = 0.02
"""How finely the stalls of the hub are measured."""
WORKER_CONNECTIONS = 10_000
"""Connections that one worker serves at a time; further ones wait in the kernel's backlog."""
HEADER_BYTES_MAX = TOKEN_CHARACTERS_MAX + 64
"""Of one header: the longest token fits, and so do the cursors of some hundred partitions."""
HEADERS_MAX = 50
"""Half of gunicorn's default: together they may be as long as they could be with shorter headers."""

_log = structlog.get_logger("rioni.server")


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT; streams end with a final batch then.

    Raises:
        DataDirectoryError: the data directory can't be used.
        Unavailable: the port is taken or not allowed, or the database can't be reached.
    """
    listener = _listen(config)
    with prepare(config) as directory:
        metrics = directory.scratch / "metrics"
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir()
        os.environ[MULTIPROCESS_FOLDER] = str(metrics)
        # PERF: what is there by now stays: no worker looks through it for garbage before its first answer, or ever.
        gc.freeze()
        gc.enable()
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
    """A worker whose sockets have deadlines, whose requests have clear bounds, and whose streams learn of its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open: set[PacedSocket] = set()

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        config = self.app.config
        deadlines = Deadlines(config.header_timeout_s, config.body_timeout_s, config.body_bytes_per_s_min)
        sock = PacedSocket(client, deadlines, time.monotonic)
        self._open.add(sock)
        try:
            super().handle(listener, sock, addr)
        finally:
            self._open.discard(sock)

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        check_host(req)
        req.body.reader = ClosingReader(req)
        sock.expect_body()
        try:
            try:
                super().handle_request(listener_name, req, sock, addr)
            finally:
                sock.flush()
        except TimeoutError as ex:
            # A client that has stopped reading is cut off; gunicorn knows what a reset is, and makes no fuss of it.
            raise ConnectionResetError(errno.ECONNRESET, "the client does not read") from ex
        sock.expect_request()
        if not self.alive:
            sock.stop_reading()

    def handle_exit(self, sig: int, frame: Any) -> None:
        self.app.stop()
        super().handle_exit(sig, frame)
        # Nobody waits for requests that may never come.
        for sock in [each for each in self._open if each.idle]:
            sock.stop_reading()

    # Ctrl-C reaches every process of the terminal; leaving is graceful all the same, and the master sees to the end.
    def handle_quit(self, sig: int, frame: Any) -> None:
        self.handle_exit(sig, frame)


class _Arbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master for which SIGINT is as graceful as SIGTERM."""

    def handle_int(self) -> None:
        self.handle_term()


class _Log(Logger):  # type: ignore[misc]  # gunicorn has no types
    """What gunicorn logs, as part of the broker's log."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class _Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The application of one `rioni serve`; each worker process puts together its own services."""

    def __init__(self, config: Config, directory: "DataDirectory", listener: socket.socket) -> None:
        self.config = config
        self._directory = directory
        self._listener = listener
        self._worker: Worker | None = None
        self._served = mmap.mmap(-1, 1)
        """Shared with the workers: whether one of them has begun."""
        self._leaving = gevent.event.Event()
        self._housekeeper: gevent.Greenlet[[Worker], None] | None = None
        super().__init__()

    def load_config(self) -> None:
        config = self.config
        settings = {
            "bind": f"fd://{self._listener.fileno()}",
            "workers": config.workers,
            "worker_class": _Worker,
            "worker_connections": WORKER_CONNECTIONS,
            "keepalive": config.keep_alive_s,
            "limit_request_fields": HEADERS_MAX,
            "limit_request_field_size": HEADER_BYTES_MAX,
            "graceful_timeout": config.shutdown_s,
            # The faster one, if it is installed, lets pass what is ambiguous.
            "http_parser": "python",
            # Names with an underscore are dropped but for these; nothing else that a proxy may add is believed.
            "forwarder_headers": "SPAN_CTX",
            "forwarded_allow_ips": "*",
            "secure_scheme_headers": {},
            "loglevel": "warning",
            "logger_class": _Log,
            "when_ready": self._announce,
            "worker_exit": self._let_go,
            "child_exit": self._forget_metrics,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Put together the services of this worker; gunicorn calls it in the forked process."""
        pool = gevent.get_hub().threadpool
        # The patched one tells greenlets apart, not threads.
        get_ident = monkey.get_original("_thread", "get_ident")
        home = get_ident()

        def offload(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
            # A function that runs in the pool already calls what it needs in place.
            if get_ident() != home:
                return function(*args, **kwargs)
            # gevent writes down every exception that ends a task, and a refusal is none of the operator's business.
            attempt: tuple[Any, BaseException | None] = pool.apply(_attempt, (function, args, kwargs))
            result, error = attempt
            if error is not None:
                raise error
            return cast("T", result)

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # PERF: who has spawned a greenlet costs memory for each connection, and nobody asks.
        gevent.config.track_greenlet_tree = False
        self._worker = self._assembled(offload)
        self._housekeeper = gevent.spawn(self._keep_house, self._worker)
        gevent.spawn(self._watch_hub, self._worker)
        # PERF: what is there by now stays; looking through it for garbage stops everything else for 100 ms each time.
        gc.collect()
        gc.freeze()
        return self._worker.app

    def _assembled(self, offload: Offload) -> Worker:
        """The services of this worker; where others serve without what it lacks, it ends, and the next one tries."""
        try:
            assembled = worker(self.config, self._directory, offload)
        except RioniError as ex:
            if not self._served[0]:
                raise
            _log.error("a worker can't begin; another one will try", reason=str(ex))
            gevent.sleep(RETRY_S)
            sys.exit(RETRIED)
        self._served[0] = 1
        return assembled

    def _keep_house(self, worker: Worker) -> None:
        while not self._leaving.wait(HOUSEKEEPING_S):
            worker.keep_house()

    @staticmethod
    def _watch_hub(worker: Worker) -> None:
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

    def _let_go(self, _arbiter: Any, _gunicorn_worker: Any) -> None:
        """Leave nothing to wait for to those who take over; called in the worker when its requests have ended."""
        if self._worker is not None and self._housekeeper is not None:
            self._leaving.set()
            self._housekeeper.join(HOUSEKEEPING_JOIN_S)
            self._worker.close()

    @staticmethod
    def _forget_metrics(_arbiter: Any, worker: Any) -> None:
        mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # prometheus_client leaves it out


def _attempt(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, BaseException | None]:
    """What a function returns, or what it raises."""
    try:
        return function(*args, **kwargs), None
    except BaseException as ex:  # noqa: BLE001 - whoever waits for the result raises it
        return None, ex
