"""Notifies waiters in all processes that share the data directory, by datagrams over Unix sockets.

Every waiting process has one socket in the directory of the signals, named by its process id. A notification is the
text of its key; several are joined by line feeds.
"""

import contextlib
import itertools
import mmap
import os
import socket
import threading  # threads: greenlets only: events with deadlines
import time
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from zlib import crc32

from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import CHANGED, SUBSCRIPTION, TOPIC, ChangeFlags
from rioni.storage.threads import ThreadSafeSemaphore


SUFFIX = ".socket"
"""Files with other names are not ours: neither written to nor removed."""

DATAGRAM_BYTES_MAX = 65_536
KEYS_PER_DATAGRAM = 50
"""Keys have some hundred characters at most, so a datagram always has room for these."""

RETRY_S = 0.005
"""The kernel queues only 10 datagrams for a socket by default. After finding the queue full, the listener resends all
pending keys together after this time, and then with increasing delays: the process may be stopped."""

RETRY_DOUBLINGS_MAX = 6

RESOLUTION_NS = 1_000_000_000
"""A time longer than the resolution of any file system's timestamps."""

CLOSE_WAIT_S = 5.0
"""How long closing waits for the listener, which never blocks."""


class EmbeddedWatch:
    """Waits for notifications about keys; the port `Waiter`."""

    __slots__ = ("_signals", "_woken", "keys")

    def __init__(self, signals: "EmbeddedSignals", keys: tuple[str, ...]) -> None:
        self._signals = signals
        self._woken = threading.Event()
        self.keys = keys

    def wake(self) -> None:
        """Make the current wait, or else the next one, return at once."""
        self._woken.set()

    def wait(self, timeout_s: float) -> bool:
        """Block until a notification has arrived since the last call, or until the timeout; return whether it has."""
        # A notification may come when the wait has timed out, but this thread or greenlet has not continued yet.
        if not (self._woken.wait(timeout_s) or self._woken.is_set()):
            return False
        # A notification between the two lines is not lost: the caller reads the data only after this.
        self._woken.clear()
        return True

    def close(self) -> None:
        """Stop watching."""
        self._signals.remove(self)


class EmbeddedSignals:
    """The port `Notifier` for the processes of one machine; each forked process opens its own socket."""

    def __init__(self, directory: Path, flags: ChangeFlags | None = None) -> None:
        """Open nothing yet.

        Args:
            directory: an existing directory for the sockets, of any length.
            flags: raised for each topic and subscription that has changed.
        """
        self._directory, self._flags = directory, flags
        self._lock = ThreadSafeSemaphore()
        self._process = _Process(directory)

    def notify(self, *keys: str) -> None:
        """Wake all watchers of the keys. Never blocks, never raises."""
        self._raise_flags(keys)
        keys = tuple(key for key in keys if not key.startswith(CHANGED))
        if not keys:
            return
        with contextlib.suppress(OSError):
            process = self._here()
            process.dispatch(keys)
            process.send(keys)

    def notify_here(self, *keys: str) -> None:
        """Wake only the watchers in this process: the others are notified otherwise. Never blocks."""
        self._raise_flags(keys)
        self._here().dispatch(keys)

    def watch(self, keys: Iterable[str]) -> EmbeddedWatch:
        """Start watching; notifications from now on are not missed.

        Raises:
            Unavailable: the socket can't be opened.
        """
        waiter = EmbeddedWatch(self, tuple(keys))
        try:
            process = self._here()
            with self._lock:
                process.listen()
        except OSError as ex:
            raise Unavailable(
                f"No signals can be received: {ex}. Check disk space and the limit on open files."
            ) from ex
        process.add(waiter)
        return waiter

    def version(self, key: str) -> int:
        """Return a number that changes with each notification of a watched key, before watchers are woken."""
        return self._process.generations.get(key, 0)

    def remove(self, waiter: EmbeddedWatch) -> None:
        """Stop notifying a watch."""
        self._here().remove(waiter)

    def close(self) -> None:
        """Stop the listener and remove the socket."""
        with self._lock:
            self._process.close()

    def _raise_flags(self, keys: Iterable[str]) -> None:
        if (flags := self._flags) is not None:
            for key in keys:
                if key.startswith((TOPIC, SUBSCRIPTION, CHANGED)):
                    flags.raise_flag(key.partition(":")[2])

    def _here(self) -> "_Process":
        if self._process.pid != os.getpid():
            # Forked: locks may have been copied while held, the threads are gone, the sockets are the parent's.
            self._lock = ThreadSafeSemaphore()
            self._process.abandon()
            self._process = _Process(self._directory)
        return self._process


class _Process:
    """Resources of one process: its socket, listener, watches, and the notifications not yet delivered to others."""

    def __init__(self, directory: Path) -> None:
        self.pid = os.getpid()
        self._directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{self.pid}-{os.urandom(6).hex()}{SUFFIX}"
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._receiver: socket.socket | None = None
        self._listener: threading.Thread | None = None
        self._watches: dict[str, set[EmbeddedWatch]] = {}
        self.generations: dict[str, int] = {}
        self._dispatched = 0
        self._lock = ThreadSafeSemaphore()
        self._backlog: dict[str, set[str]] = {}
        self._retries = 0
        self._listed: Sequence[str] = ()
        self._listed_ns = 0
        """When the directory changed last, by its own clock, as of `_listed`; 0 if it must be listed again."""
        self._closed = False

    def add(self, waiter: EmbeddedWatch) -> None:
        with self._lock:
            for key in waiter.keys:
                self._watches.setdefault(key, set()).add(waiter)

    def remove(self, waiter: EmbeddedWatch) -> None:
        with self._lock:
            for key in waiter.keys:
                watches = self._watches.get(key, set())
                watches.discard(waiter)
                if not watches:
                    self._watches.pop(key, None)
                    self.generations.pop(key, None)

    def dispatch(self, keys: Iterable[str]) -> None:
        with self._lock:
            self._dispatched += 1
            watched = [key for key in keys if key in self._watches]
            self.generations.update(dict.fromkeys(watched, self._dispatched))
            woken = {waiter for key in watched for waiter in self._watches[key]}
        for waiter in woken:
            waiter.wake()

    # --- Sending ---

    def send(self, keys: Iterable[str]) -> None:
        """Send to all other processes, without blocking."""
        with self._lock:
            for peer in self._peers() if not self._closed else ():
                self._send(peer, self._backlog.pop(peer, set()).union(keys))
            if self._backlog and not self._retries:
                self._listen()
                self._wake_listener()

    def _peers(self) -> Sequence[str]:
        """Return the names of the other sockets."""
        # PERF: listing takes 20 µs, so it is repeated only after a change of the directory.
        changed_ns = os.fstat(self._directory_fd).st_mtime_ns
        if changed_ns != self._listed_ns:
            names = os.listdir(self._directory_fd)  # noqa: PTH208 - by descriptor
            self._listed = [name for name in names if name != self._name and name.endswith(SUFFIX)]
            # Another change within the resolution of the file system's clock would have the same time.
            self._listed_ns = changed_ns if time.time_ns() - changed_ns > RESOLUTION_NS else 0
        return self._listed

    def _send(self, peer: str, keys: set[str]) -> None:
        try:
            while keys:
                some = list(itertools.islice(keys, KEYS_PER_DATAGRAM))
                self._sender.sendto("\n".join(some).encode(), self._address(peer))
                self._retries = 0
                keys = keys.difference(some)
        except BlockingIOError:
            self._backlog[peer] = keys
        except ConnectionRefusedError:
            # The socket's process has died. Names are never reused, so no living process can be affected.
            with contextlib.suppress(OSError):
                os.unlink(peer, dir_fd=self._directory_fd)
        except OSError:
            pass  # the peer has just closed, or the system is short of buffers: the notification is lost, as any may be

    def _send_backlog(self) -> None:
        with self._lock:
            if not self._backlog:
                return
            backlog, self._backlog = self._backlog, {}
            self._retries += 1
            for peer, keys in backlog.items():
                self._send(peer, keys)

    def _wake_listener(self) -> None:
        # A full queue wakes it as well as an empty datagram does.
        if self._receiver is not None:
            with contextlib.suppress(OSError):
                self._sender.sendto(b"", self._address(self._name))

    def _address(self, name: str) -> str:
        # The address of a Unix socket may have 107 bytes; this form is short however long the path of the directory is.
        return f"/proc/self/fd/{self._directory_fd}/{name}"

    # --- Receiving ---

    def listen(self) -> None:
        """Open the socket and start the listener, if not already done."""
        with self._lock:
            self._listen()

    def _listen(self) -> None:
        if self._receiver is None:
            self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._receiver.bind(self._address(self._name))
            os.chmod(self._name, 0o600, dir_fd=self._directory_fd)
            self._listener = threading.Thread(
                target=self._receive, args=(self._receiver,), name="rioni-signals", daemon=True
            )
            self._listener.start()

    def _receive(self, receiver: socket.socket) -> None:
        while not self._closed:
            pause_s = RETRY_S * 2 ** min(self._retries, RETRY_DOUBLINGS_MAX)
            receiver.settimeout(pause_s if self._backlog else None)
            with contextlib.suppress(TimeoutError):
                self.dispatch(receiver.recv(DATAGRAM_BYTES_MAX).decode(errors="replace").split("\n"))
            self._send_backlog()

    # --- Ending ---

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._receiver and self._listener:
            self._wake_listener()
            self._listener.join(CLOSE_WAIT_S)
            self._receiver.close()
            os.unlink(self._name, dir_fd=self._directory_fd)
        self._sender.close()
        os.close(self._directory_fd)

    def abandon(self) -> None:
        """Close a forked process's copies of its parent's files; the socket's name stays the parent's."""
        self._closed = True
        self._sender.close()
        if self._receiver:
            self._receiver.close()
        os.close(self._directory_fd)


# --- Flags of changes, in memory that forked processes share ---

FLAGS = 1 << 16
"""PERF: 10,000 names share a flag with another one in 15 % of cases, and looking at all flags takes 5 us."""

RAISED = 1


class SharedChangeFlags:
    """The port `ChangeFlags`. Create it before forking: each process that inherits it shares the flags."""

    def __init__(self) -> None:
        self._flags = mmap.mmap(-1, FLAGS)

    def raise_flag(self, name: str) -> None:
        """Raise the flag of a name; see the port. PERF: 0.3 us; a single byte, so processes need no lock."""
        self._flags[self.flag_of(name)] = RAISED

    def flag_of(self, name: str) -> int:
        """Return the number of a name's flag; see the port."""
        return crc32(name.encode()) % FLAGS

    def take(self) -> Collection[int]:
        """Return and lower the raised flags; see the port."""
        flags, found = self._flags[:], []
        at = flags.find(RAISED)
        while at >= 0:
            # Lowered before the caller checks for changes: any change after that raises it again.
            self._flags[at] = 0
            found.append(at)
            at = flags.find(RAISED, at + 1)
        return found
