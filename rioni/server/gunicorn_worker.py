"""gunicorn's worker, arbiter, parser and log as the broker needs them: subclasses, and the functions they replace."""

import errno
import os
import signal
import time
from functools import partial
from typing import Any

import gevent
from gunicorn.arbiter import Arbiter
from gunicorn.glogging import Logger
from gunicorn.workers import ggevent

from rioni.domain.access.addresses import address_key
from rioni.http.connection.framing import ClosingReader, create, discard_rest
from rioni.http.connection.listener import BalancedServer
from rioni.http.connection.timeouts import Deadlines, DeadlineSocket, OpenConnections
from rioni.patches.gunicorn import use_functions


EXIT_POLL_S = 0.005
"""Interval at which connections that were cut are checked for their end."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
"""Signals that ask a process to end."""


class BrokerWorker(ggevent.GeventWorker):  # type: ignore[misc]  # gunicorn has no types
    """A worker whose sockets have deadlines, whose requests have clear bounds, and whose streams learn of its end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._open = OpenConnections(self.worker_connections)
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
            gevent.sleep(EXIT_POLL_S)
        return len(found)

    def init_signals(self) -> None:
        """Set the handlers of signals in the new process; gunicorn calls it."""
        super().init_signals()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        # A terminal sends SIGHUP to every process; the master handles it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def run(self) -> None:
        """Serve until the worker ends; blocks the process."""
        use_functions(self._create_server, create)
        super().run()

    def _create_server(self, *args: Any, **kwargs: Any) -> BalancedServer:
        self._server = BalancedServer(self.app.connection_counts, self.number, *args, **kwargs)
        return self._server

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection until it ends; blocks its greenlet."""
        config = self.app.config
        deadlines = Deadlines(config.header_timeout_s, config.body_timeout_s, config.body_bytes_per_s_min)
        sock = DeadlineSocket(client, deadlines, time.monotonic)
        # Clients of a Unix socket have no address.
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
        """Answer one request, and read the rest of its body.

        Raises:
            StopIteration: the connection ends; gunicorn closes it.
            ConnectionResetError: the client does not read the answer.
        """
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
            # A client that has stopped reading is cut off; gunicorn handles such a reset quietly.
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
        """Begin to end: requests and streams under way are answered."""
        super().handle_exit(sig, frame)
        # NOTE: not here, as what the signal has interrupted may hold a lock that is needed for it.
        gevent.spawn(self._leave)

    def _leave(self) -> None:
        self.app.stop()
        # Don't wait for requests that may never come.
        for sock in [each for each in self._open if each.idle]:
            sock.stop_reading()

    # Ctrl-C reaches every process of the terminal; a worker leaves gracefully all the same, and the master controls the
    # end.
    def handle_quit(self, sig: int, frame: Any) -> None:
        """End as gracefully as on SIGTERM."""
        self.handle_exit(sig, frame)


class BrokerArbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A master for which SIGINT is as graceful as SIGTERM, and so is a terminal that is closed."""

    def __init__(self, app: Any) -> None:
        # `nohup` has the signal ignored.
        self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
        super().__init__(app)

    def handle_hup(self) -> None:
        """End with the terminal; reload if SIGHUP came from elsewhere."""
        if self._ends_with_terminal and not _has_terminal():
            self.handle_term()
        else:
            super().handle_hup()

    def handle_int(self) -> None:
        """End as gracefully as on SIGTERM."""
        self.handle_term()

    def spawn_worker(self) -> Any:
        """Start a worker, with the signals that end a process held back until it handles them."""
        # Until a new worker has its own handlers, it would put signals into a queue that nobody reads.
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


class BrokerLog(Logger):  # type: ignore[misc]  # gunicorn has no types
    """The logger of gunicorn, which writes into the broker's log."""

    def setup(self, cfg: Any) -> None:
        """Pass gunicorn's messages on to the broker's log."""
        super().setup(cfg)
        self.error_log.handlers.clear()
        self.error_log.propagate = True
