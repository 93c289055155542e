"""The socket on which clients connect: its TLS, and how its connections are spread over the workers of a node."""

import contextlib
import errno
import mmap
import socket
import ssl
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NoReturn

import structlog
from gevent.server import StreamServer

from rioni.domain.access.addresses import host_and_port
from rioni.domain.errors import Unavailable
from rioni.files.plain import file_errors


# --- The socket on which clients connect ---

BACKLOG = 2_048
UNSENT_BYTES_MAX = 262_144
"""How many bytes of an answer the kernel takes before they are sent: the rest is in the budget of answers.

By default it takes up to 4 MB for each client that does not read (`net.ipv4.tcp_wmem`). A smaller buffer (`SO_SNDBUF`)
would also limit the bytes in flight, and so the rate to clients that are far away.
"""


def listen(host: str, port: int) -> socket.socket:
    """Listen; connections that are accepted have the options of this socket.

    Raises:
        Unavailable: the port is taken or not allowed, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as ex:
        where = host_and_port(host, port)
        if ex.errno == errno.EADDRINUSE:
            raise Unavailable(
                f"{where} is in use by another process. Stop it, or name another port: --port or RIONI_PORT."
            ) from ex
        raise Unavailable(f"{where} can't be listened on: {ex.strerror}. Name another host or port.") from ex
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES_MAX)
    return listener


# --- Spreads connections evenly over the worker processes of a node ---
#
# All workers accept from the same socket, and the first one to wake up would take every connection that waits there. So
# they share the numbers of their connections, and a worker that has more of them than another leaves new ones to that.

LEAD_MAX = 1
"""How many connections more than another worker one may have and still accept."""

LEAVE_S = 0.1
"""How long a new connection is left to the others. They may be busy or hang: each further one is left to them for half
of the time, until they accept again."""
LOOK_EVERY_S = 0.002

_ABSENT = -1


class ConnectionCounts:
    """The number of open connections of each worker, in memory that forked processes share."""

    def __init__(self, workers: int) -> None:
        """Allocate the memory, in the parent process.

        Args:
            workers: how many there may be at a time, with those that are being replaced.
        """
        self._counts = memoryview(mmap.mmap(-1, 4 * workers)).cast("i")
        for number in range(workers):
            self.leave(number)

    def free_number(self, taken: Collection[int]) -> int:
        """Return a number for another worker; the last one is shared by all workers beyond the maximum."""
        last = len(self._counts) - 1
        return next((number for number in range(last) if number not in taken), last)

    def set(self, number: int, connections: int) -> None:
        """Publish the number of connections of a worker that accepts."""
        self._counts[number] = connections

    def of(self, number: int) -> int:
        """Return the number of connections of a worker."""
        return max(0, self._counts[number])

    def leave(self, number: int) -> None:
        """Publish that a worker does not accept, or has ended."""
        self._counts[number] = _ABSENT

    def least(self) -> int:
        """Return the smallest number of connections of a worker that accepts."""
        return min((count for count in self._counts if count != _ABSENT), default=0)


class BalancedServer(StreamServer):
    """Accepts connections while this worker has not many more than another."""

    def __init__(self, counts: ConnectionCounts, number: int, *args: Any, **kwargs: Any) -> None:
        """Create the server; the further arguments are those of `StreamServer`.

        Args:
            counts: the connection counts of all workers.
            number: the number of this worker.
            args: arguments of `StreamServer`.
            kwargs: keyword arguments of `StreamServer`.
        """
        self._counts, self._number = counts, number
        self._connections = self._least = 0
        self._leave_s, self._left_since_s = LEAVE_S, 0.0
        self._accept_again: Any = None
        """The timer until which new connections are left to others."""
        super().__init__(*args, **kwargs)
        counts.set(number, 0)

    def do_read(self) -> Any:
        """Accept a connection, unless it is left to another worker."""
        if self._leaves():
            self.stop_accepting()
            self._close_timer()
            self._accept_again = self.loop.timer(LOOK_EVERY_S)
            self._accept_again.start(self._accept_if_started)
            return None
        accepted = super().do_read()
        if accepted:
            self._note(1)
        return accepted

    def ended(self) -> None:
        """Count a connection no longer."""
        self._note(-1)

    def close(self) -> None:
        """Accept no more connections."""
        super().close()
        self._close_timer()
        self._counts.leave(self._number)

    def _accept_if_started(self) -> None:
        self._close_timer()
        if self.started:
            self.start_accepting()

    def _close_timer(self) -> None:
        if self._accept_again is not None:
            self._accept_again.stop()
            self._accept_again.close()
            self._accept_again = None

    def _note(self, change: int) -> None:
        self._connections += change
        if not self.closed:
            self._counts.set(self._number, self._connections)

    def _leaves(self) -> bool:
        least = self._counts.least()
        if least != self._least:
            self._least, self._leave_s = least, LEAVE_S
        if self._connections - least <= LEAD_MAX:
            self._left_since_s = 0.0
            return False
        now_s = time.monotonic()
        self._left_since_s = self._left_since_s or now_s
        if now_s < self._left_since_s + self._leave_s:
            return True
        self._leave_s, self._left_since_s = self._leave_s / 2, 0.0
        return False


# --- TLS for the listener: certificate and key are read from files, again whenever these change ---

_log = structlog.get_logger("rioni.tls")

Stamp = tuple[tuple[int, int, int] | None, ...]
"""Time, size and inode of each file; None for one that can't be read."""


class TlsSocket(ssl.SSLSocket):
    """A TLS connection with the read, write and shutdown behaviour of a plain one."""

    def recv(self, size: int = 1024, flags: int = 0) -> bytes:
        """Read; raises ConnectionResetError if the client breaks the protocol."""
        try:
            return super().recv(size, flags)
        except ssl.SSLError as ex:
            raise ConnectionResetError(errno.ECONNRESET, str(ex)) from ex

    def send(self, data: Any, flags: int = 0, **options: Any) -> int:
        """Write; raises as `recv` does."""
        try:
            return super().send(data, flags, **options)
        except ssl.SSLError as ex:
            raise ConnectionResetError(errno.ECONNRESET, str(ex)) from ex

    def shutdown(self, how: int) -> None:
        """Shut down the connection below; that of `ssl` would let later data go out in plain text."""
        socket.socket.shutdown(self, how)

    def close(self) -> None:
        """Close, after a close_notify if it needs no waiting: it lets clients distinguish the end from a cut."""
        with contextlib.suppress(OSError, ValueError):
            self.settimeout(0)
            self.unwrap()
        super().close()


class Tls:
    """The certificate for new connections."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read the files; blocks.

        Args:
            certificate: PEM file with the certificate of the broker, followed by those of intermediate authorities.
            key: PEM file with its private key, without a passphrase.

        Raises:
            Unavailable: a file can't be used; the message names it, with the reason.
        """
        self._certificate, self._key = certificate, key
        self._seen = self._stamp()
        self._context = self._read()

    def reload(self) -> None:
        """Read the files again if they have changed; blocks. Keeps the old certificate if they can't be used."""
        stamp = self._stamp()
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            self._context = self._read()
        except Unavailable as ex:
            _log.warning("could not reload the certificate; keeping the previous one", reason=str(ex))
        else:
            _log.info("certificate reloaded", file=str(self._certificate))

    def wrap(self, connection: socket.socket) -> ssl.SSLSocket:
        """A connection with TLS, whose handshake is still to be done; it takes the place of the given one."""
        return self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)

    def _stamp(self) -> Stamp:
        return tuple(map(_stamp, (self._certificate, self._key)))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslsocket_class = TlsSocket
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        for name, path in (("tls_certificate", self._certificate), ("tls_key", self._key)):
            with file_errors(f"{name}: {path} can't be read"):
                # Reading a pipe would block for ever.
                if not path.is_file():
                    path.stat()
                    raise Unavailable(f"{name}: {path} is not a regular file.")
                path.read_bytes()
        try:
            context.load_cert_chain(self._certificate, self._key, password=_refuse_passphrase)
        except (OSError, ValueError) as ex:
            raise Unavailable(
                f"tls_certificate {self._certificate} and tls_key {self._key} can't be used: {ex}. Both are PEM files, "
                "the key belongs to the first certificate and has no passphrase."
            ) from ex
        return context


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _refuse_passphrase() -> NoReturn:
    raise ValueError("the key has a passphrase")
