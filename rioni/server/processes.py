"""The server: prepares the data directory, then runs the worker processes under gunicorn until SIGTERM or SIGINT."""

import faulthandler
import gc
import mmap
import os
import shutil
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gevent
import gevent.event
import structlog
from gunicorn.app.base import BaseApplication

from rioni.config.logs import FailureLog, SharedFailure
from rioni.config.settings import Config
from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import RioniError, Unavailable
from rioni.domain.ports.host import Clock
from rioni.domain.system.reports import EVERY_S as REPORT_EVERY_S
from rioni.http.connection.framing import BoundedRequest
from rioni.http.connection.listener import ConnectionCounts, Tls, listen
from rioni.http.metrics.shared_tables import MULTIPROCESS_FOLDER, release_slot
from rioni.http.middleware.authentication import TOKEN_CHARACTERS_MAX
from rioni.installation.from_config import NO_SHARED_KEY
from rioni.installation.pools import FILES, NAMES, Pool, Pools, kinds_for, resolve_in
from rioni.patches.gunicorn import use_request_class
from rioni.server.gunicorn_worker import BrokerArbiter, BrokerLog, BrokerWorker
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
        use_request_class(BoundedRequest)
        BrokerArbiter((application or Application)(config, directory, listener, tls)).run()


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
            "worker_class": BrokerWorker,
            "worker_connections": WORKER_CONNECTIONS,
            "keepalive": config.keep_alive_s,
            "limit_request_fields": HEADERS_MAX,
            "limit_request_field_size": HEADER_BYTES_MAX,
            "graceful_timeout": config.shutdown_timeout_s,
            # The faster parser, if it is installed, accepts ambiguous requests.
            "http_parser": "python",
            # Names with an underscore are dropped but for these; nothing else that a proxy may add is believed.
            "forwarder_headers": "SPAN_CTX",
            "forwarded_allow_ips": "*",
            "secure_scheme_headers": {},
            # All brokers of a user would make the same file, in the home directory.
            "control_socket_disable": True,
            "loglevel": "warning",
            "logger_class": BrokerLog,
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
        # Pause for as long as the last round took.
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
