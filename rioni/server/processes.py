"""The server: prepares the data directory, then runs the worker processes under gunicorn until SIGTERM or SIGINT."""

import errno
import faulthandler
import gc
import mmap
import os
import shutil
import signal
import socket
import sys
import time
from email.utils import formatdate
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import gevent.event
import structlog
from gunicorn import util
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.http import wsgi
from gunicorn.http.parser import RequestParser
from gunicorn.workers import ggevent

from rioni.config.logs import FailureLog, SharedFailure
from rioni.config.settings import Config
from rioni.domain.access.addresses import address_key, host_and_port
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.ports.host import Clock
from rioni.domain.system.worker_reports import EVERY_S as REPORT_EVERY_S
from rioni.http.connection.framing import BoundedRequest, ClosingReader, create, discard_rest
from rioni.http.connection.listener import BalancedServer, ConnectionCounts, Tls, listen
from rioni.http.connection.timeouts import Deadlines, DeadlineSocket, OpenConnections
from rioni.http.metrics.metrics_files import MULTIPROCESS_FOLDER, release_slot
from rioni.http.middleware.authentication import TOKEN_CHARACTERS_MAX
from rioni.installation.from_config import NO_SHARED_KEY
from rioni.installation.pools import FILES, NAMES, Pool, Pools, kinds_for, resolve_in
from rioni.server.memory import limit_arenas
from rioni.server.reporting import TICK_S as LAGS_TICK_S
from rioni.server.startup import prepare_startup
from rioni.server.watchdog import HubWatch, Replacements, end_within
from rioni.server.worker import Worker, shared_buckets, worker


if TYPE_CHECKING:
    from collections.abc import Callable

    from rioni.storage.embedded.data_directory import DataDirectory


SWITCH_INTERVAL_S = 0.000_5
"""PERF: a thread that comes back from the disk waits this long for the interpreter; the default is ten times longer."""
HOUSEKEEPING_S = 0.5
"""Interval of background jobs: the streams of a killed worker are reassigned after this time."""
RETRY_S = 1.0
"""How soon another worker is started after one that could not begin."""
RETRIED = 1
"""The exit code of a worker that could not begin; with gunicorn's own for that it would end all others."""
BACKGROUND_JOBS_JOIN_S = 5.0
"""How long a worker that ends waits for a running background job."""
LOOK_AT_POOLS_S = 1.0
"""Interval at which the thread pools are checked for hanging threads."""
REPLACED_EVERY_S = 300.0
"""Workers of a node that are replaced because their threads hang: so seldom, as a new one may meet the same disk."""
LOOK_AT_ENDS_S = 0.005
CLOSING_S = 10.0
"""Time for a replaced worker to release its resources after its requests have ended; then it is killed."""
CERTIFICATE_LOOK_S = 1.0
"""How often the files of the certificate are checked."""
WORKER_CONNECTIONS = 10_000
"""Connections that one worker serves at a time; further ones wait in the kernel's backlog."""
HEADER_BYTES_MAX = TOKEN_CHARACTERS_MAX + 64
"""The limit for one header: the longest token fits, and so do the cursors of some hundred partitions."""
HEADERS_MAX = 50
"""Half of gunicorn's default."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals that ask a process to end."""

_log = structlog.get_logger("rioni.server")


def serve(config: Config, application: "Callable[..., Application] | None" = None) -> None:
    """Serve until SIGTERM or SIGINT; streams end with a final batch then.

    Args:
        config: the settings.
        application: makes the application, with the arguments of `Application`; for a subclass that adds to it.

    Raises:
        DataDirectoryError: the data directory can't be used.
        Unavailable: the certificate can't be used, the port is taken or not allowed, the database can't be reached, or
            the broker would listen on a public address without authentication and without the setting that allows it.
    """
    _check_exposure(config)
    _check_key_is_shared(config)
    tls = None
    if config.tls_certificate is not None and config.tls_key is not None:
        tls = Tls(config.tls_certificate, config.tls_key)
    listener = listen(config.host, config.port)
    with prepare_startup(config) as directory:
        metrics = directory.scratch / "metrics"
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir()
        os.environ[MULTIPROCESS_FOLDER] = str(metrics)
        # PERF: objects that exist by now are permanent: exclude them from garbage collection in all workers.
        gc.freeze()
        gc.enable()
        RequestParser.mesg_class = BoundedRequest
        # PERF: gunicorn looks for the rest of each body once more, which `handle_request` has read.
        RequestParser.finish_body = lambda *_: True
        _Arbiter((application or Application)(config, directory, listener, tls)).run()


def _check_exposure(config: Config) -> None:
    if not config.unprotected:
        return
    where = f"host {config.host} can be reached from other machines, and auth_mode is off"
    if not config.allow_unauthenticated:
        raise Unavailable(
            f"{where}: anyone there would have all permissions. Set auth_mode (docs/operating/security.md), listen on "
            "127.0.0.1, or accept it: --allow-unauthenticated or RIONI_ALLOW_UNAUTHENTICATED=true."
        )
    _log.warning("anyone who can reach the broker has all permissions", host=config.host, auth_mode=config.auth_mode)


def _check_key_is_shared(config: Config) -> None:
    if config.clustered and config.log_signing_key is None:
        _log.warning(NO_SHARED_KEY)


@lru_cache(1)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)


class _Worker(ggevent.GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """A worker whose sockets have deadlines, whose requests have clear bounds, and whose streams learn of its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open = OpenConnections(WORKER_CONNECTIONS)
        self.number = 0
        """Among the workers of the node."""
        self._server: BalancedServer | None = None

    def drop_connections(self, within_s: float) -> int:
        """Cut all open connections, and wait until their users have ended.

        Args:
            within_s: how long to wait at most.

        Returns:
            How many there were.
        """
        for sock in (found := {*self._open}):
            sock.cut()
        until_s = time.monotonic() + within_s
        while found & {*self._open} and time.monotonic() < until_s:
            gevent.sleep(LOOK_AT_ENDS_S)
        return len(found)

    def init_signals(self) -> None:
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        # That of a terminal reaches every process; the master sees to it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        # gunicorn has no settings for these.
        ggevent.StreamServer = self._create_server
        # PERF: gunicorn formats the date and looks for its log in each request, 40 us of 600.
        util.http_date = lambda: _date(int(time.time()))
        wsgi.WSGIErrorsWrapper = cache(wsgi.WSGIErrorsWrapper)
        wsgi.create = create
        super().run()

    def _create_server(self, *args: Any, **kwargs: Any) -> BalancedServer:
        self._server = BalancedServer(self.app.connection_counts, self.number, *args, **kwargs)
        return self._server

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        config = self.app.config
        deadlines = Deadlines(config.header_timeout_s, config.body_timeout_s, config.body_bytes_per_s_min)
        sock = DeadlineSocket(client, deadlines, time.monotonic)
        # Those of a Unix socket have none.
        address = address_key(addr[0] if addr else "")
        self._open.add(sock, address)
        if not self.alive:
            # Accepted at the last moment: a request that has arrived is answered, none is waited for.
            sock.stop_reading()
        try:
            if self._secure(sock):
                super().handle(listener, sock, addr)
        finally:
            self._open.discard(sock, address)
            if self._server is not None:
                self._server.ended()

    def _secure(self, sock: DeadlineSocket) -> bool:
        """Do the handshake of TLS, if the broker speaks it; return whether the connection can be used."""
        if self.app.tls is None:
            return True
        try:
            sock.secure(self.app.tls, partial(gevent.Timeout, exception=TimeoutError))
        except OSError:
            sock.close()
            return False
        return True

    def handle_request(self, listener_name: Any, req: Any, sock: Any, addr: Any) -> None:
        req.body.reader = ClosingReader(req)
        sock.expect_body()
        req.scheme = "http" if self.app.tls is None else "https"
        closes = False
        self.app.hub_watch.request_begins()
        try:
            try:
                super().handle_request(listener_name, req, sock, addr)
            except StopIteration:  # gunicorn's way to end the connection
                closes = True
            finally:
                sock.flush()
        except TimeoutError as ex:
            # A client that has stopped reading is cut off; gunicorn knows what a reset is, and makes no fuss of it.
            raise ConnectionResetError(errno.ECONNRESET, "the client does not read") from ex
        finally:
            self.app.hub_watch.request_ends()
        sock.expect_body(answered=True)
        if not discard_rest(req) or closes:
            raise StopIteration
        sock.expect_request()
        if not self.alive:
            sock.stop_reading()

    def handle_exit(self, sig: int, frame: Any) -> None:
        super().handle_exit(sig, frame)
        # NOTE: not here, as what the signal has interrupted may hold a lock that is needed for it.
        gevent.spawn(self._leave)

    def _leave(self) -> None:
        self.app.stop()
        # Don't wait for requests that may never come.
        for sock in [each for each in self._open if each.idle]:
            sock.stop_reading()

    # Ctrl-C reaches every process of the terminal; leaving is graceful all the same, and the master sees to the end.
    def handle_quit(self, sig: int, frame: Any) -> None:
        self.handle_exit(sig, frame)


class _Arbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master for which SIGINT is as graceful as SIGTERM, and so is a terminal that is closed."""

    def __init__(self, app: "Application") -> None:
        # `nohup` has the signal ignored.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        super().__init__(app)

    def handle_hup(self) -> None:
        if self._ends_with_terminal and not _has_terminal():
            self.handle_term()
        else:
            super().handle_hup()

    def handle_int(self) -> None:
        self.handle_term()

    def spawn_worker(self) -> Any:
        # Until a new worker has handlers of its own, it would put signals into a queue that nobody reads.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _has_terminal() -> bool:
    """Whether this process has a terminal that controls it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


class _Log(Logger):  # type: ignore[misc]  # gunicorn has no types
    """The logger of gunicorn, which writes into the broker's log."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True


class Application(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """The application of one `rioni serve`; each worker process puts together its own services."""

    clock: Clock | None = None
    """The time of a worker; by default the machine's."""

    def __init__(self, config: Config, directory: "DataDirectory", listener: socket.socket, tls: Tls | None) -> None:
        self.config = config
        self.tls = tls
        self._directory = directory
        self._listener = listener
        self._address = listener.getsockname()
        self._worker: Worker | None = None
        # Replaced workers may not have ended yet.
        self.connection_counts = ConnectionCounts(2 * config.workers + 2)
        self.hub_watch = HubWatch()
        self._buckets = shared_buckets()
        self._number = 0
        """The number of this worker among those of the node."""
        self._served = mmap.mmap(-1, 1)
        """Shared with the workers: whether one of them has begun."""
        self._failed_start = SharedFailure(_log, "worker failed to start; retrying")
        self._unannounced, write_end = os.pipe()
        """Holds one byte, which the first worker that serves takes; then it is at its end."""
        os.write(write_end, b"1")
        os.close(write_end)
        self._replacements = Replacements(REPLACED_EVERY_S)
        self._leaving = gevent.event.Event()
        self._background_jobs: gevent.Greenlet[[Worker], None] | None = None
        super().__init__()

    def load_config(self) -> None:
        """Set the options of gunicorn, which calls this itself."""
        config = self.config
        settings = {
            "bind": f"fd://{self._listener.fileno()}",
            "workers": config.workers,
            "worker_class": _Worker,
            "worker_connections": WORKER_CONNECTIONS,
            "keepalive": config.keep_alive_s,
            "limit_request_fields": HEADERS_MAX,
            "limit_request_field_size": HEADER_BYTES_MAX,
            "graceful_timeout": config.shutdown_timeout_s,
            # The faster one, if it is installed, lets pass what is ambiguous.
            "http_parser": "python",
            # Names with an underscore are dropped but for these; nothing else that a proxy may add is believed.
            "forwarder_headers": "SPAN_CTX",
            "forwarded_allow_ips": "*",
            "secure_scheme_headers": {},
            # All brokers of a user would make the same file, in the home directory.
            "control_socket_disable": True,
            "loglevel": "warning",
            "logger_class": _Log,
            "post_worker_init": self.begun,
            "worker_exit": self._let_go,
            "pre_fork": self._give_number,
            "pre_request": lambda _worker, _request: None,  # PERF: gunicorn's own writes a message for debugging
            "child_exit": self._forget,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        """Put together the services of this worker; gunicorn calls it in the forked process."""
        limit_arenas()
        pools = Pools(kinds_for(self.config))
        resolve_in(pools[NAMES])
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        # PERF: recording the spawning greenlet costs memory for each connection, and is not used.
        gevent.config.track_greenlet_tree = False
        self.hub_watch.count_greenlets()
        self._worker = self._assembled(pools)
        self._background_jobs = gevent.spawn(self.run_background_jobs, self._worker)
        connections = partial(self.connection_counts.of, self._number)
        gevent.spawn(self.hub_watch.run, self._worker.metrics, connections)
        gevent.spawn(self._report, self._worker)
        if self.tls is not None:
            gevent.spawn(self._watch_certificate, self.tls, pools[FILES])
        gevent.spawn(self._watch_pools, self._worker)
        gevent.spawn(self.follow_lags, self._worker)
        # gunicorn ends a worker whose hub hangs by SIGABRT; then the log has the stacks of all threads.
        faulthandler.enable(sys.stderr.fileno())
        # PERF: objects that exist by now are permanent; each garbage collection of them would block for 100 ms.
        gc.collect()
        gc.freeze()
        return self._worker.app

    def _assembled(self, pools: Pools) -> Worker:
        """The services of this worker; if it can't get them but others serve, it ends, and the next one tries."""
        try:
            assembled = worker(self.config, self._directory, pools, self.clock, self._buckets)
        except RioniError as ex:
            if not self._served[0]:
                raise
            self._failed_start.failed(ex)
            gevent.sleep(RETRY_S)
            sys.exit(RETRIED)
        self._served[0] = 1
        self._failed_start.succeeded()
        return assembled

    def run_background_jobs(self, worker: Worker) -> None:
        """Run the periodic jobs until the worker ends."""
        while not self._leaving.wait(HOUSEKEEPING_S):
            worker.run_background_jobs()

    def follow_lags(self, worker: Worker) -> None:
        """Keep the lags of subscriptions up to date until the worker ends."""
        took_s = 0.0
        # What takes long pauses for as long.
        while not self._leaving.wait(max(LAGS_TICK_S, took_s)):
            begin_s = time.monotonic()
            worker.follow_lags()
            took_s = time.monotonic() - begin_s

    def _report(self, worker: Worker) -> None:
        """Tell the other workers about this one, until it ends."""
        while True:
            worker.report(self._number, self._address[1])
            if self._leaving.wait(REPORT_EVERY_S):
                return

    @staticmethod
    def _watch_certificate(tls: Tls, files: Pool) -> None:
        """Have the certificate read again when it changes, away from the hub: its disk may hang."""
        failures, unchecked = FailureLog(_log), "could not check the certificate files for changes"
        while True:
            gevent.sleep(CERTIFICATE_LOOK_S)
            try:
                files(tls.reload)
                failures.succeeded(unchecked)
            except Unavailable as ex:
                failures.failed(unchecked, ex)

    def _watch_pools(self, worker: Worker) -> None:
        """Replace this worker when native threads hang, at most one worker of the node per `REPLACED_EVERY_S`."""
        while not self._leaving.wait(LOOK_AT_POOLS_S):
            worker.watchdog.check()
            if worker.watchdog.hangs and self._replacements.allowed(time.monotonic()):
                _log.error("native threads hang; replacing this worker")
                end_within(self.config.shutdown_timeout_s + CLOSING_S)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def stop(self) -> None:
        """End the streams of this worker with a final batch."""
        if self._worker is not None:
            self._worker.stop()

    @property
    def url(self) -> str:
        """The URL at which the broker is served."""
        host, port = self._address[:2]
        return f"{'http' if self.tls is None else 'https'}://{host_and_port(str(host), port)}{self.config.base_path}"

    def begun(self, _gunicorn_worker: Any) -> None:
        """Announce the broker once, as soon as a worker can answer."""
        if os.read(self._unannounced, 1):
            self.announce()

    def announce(self) -> None:
        """Print the broker's address."""
        workers = f"{self.config.workers} worker" + ("s" if self.config.workers > 1 else "")
        sys.stderr.write(f"Rioni serves {self.url} with {workers}, data in {self.config.data}\n")

    def _let_go(self, _arbiter: Any, _gunicorn_worker: Any) -> None:
        """Release all resources, so that other workers need not wait for time-outs; called when requests have ended."""
        if self._worker is not None and self._background_jobs is not None:
            self._leaving.set()
            self._background_jobs.join(BACKGROUND_JOBS_JOIN_S)
            self._worker.close()

    def _give_number(self, arbiter: Any, worker: Any) -> None:
        self._number = worker.number = self.connection_counts.free_number(
            {each.number for each in arbiter.WORKERS.values()}
        )

    def _forget(self, _arbiter: Any, worker: Any) -> None:
        self.connection_counts.leave(worker.number)
        release_slot(Path(os.environ[MULTIPROCESS_FOLDER]), worker.pid)
