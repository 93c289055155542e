"""Configures ZooKeeper clients, translates ZooKeeper's errors, and builds requests of several operations."""

import contextlib
import logging
import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple

from gevent import monkey
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.gevent import SequentialGeventHandler
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry

from rioni.domain.errors import Unavailable


# --- Wakes the driver's send loop with a pipe instead of a socket pair ---
#
# Each request writes a byte. Some 280 of them fill a socket pair. The next request then blocks until the loop has sent
# some: for ever, if it is made from within the loop. And under gevent only one request can block: a second one gets an
# error that the connection is closed, though its request stays queued, and nothing wakes the loop for it.


class _End:
    """An end of a pipe with the methods of a socket that the driver uses."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """The file descriptor."""
        return self._descriptor

    def send(self, data: bytes) -> int:
        """Write; never blocks."""
        return os.write(self._descriptor, data)

    def recv(self, size: int) -> bytes:
        """Read; never blocks."""
        return os.read(self._descriptor, size)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)


def waking_pair() -> tuple[_End, _End]:
    """Return the read and write ends: 65,536 bytes, which is more than this process ever has pending."""
    read, write = os.pipe()
    for descriptor in (read, write):
        os.set_blocking(descriptor, False)
    return _End(read), _End(write)


# --- Configures ZooKeeper clients, and translates ZooKeeper's errors ---

REFUSALS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""Errors that ZooKeeper returns if a node's state is not as expected."""

UNREACHABLE = "ZooKeeper can't be reached at the moment. Try again later."

_INTERRUPTIONS = (ConnectionLoss, SessionExpiredError, SessionMovedError, OperationTimeoutError)
_ROLLED_BACK = (RolledBackError, RuntimeInconsistency)

REPEATED_AFTER_S = 60.0
"""The driver repeats its messages with each try, several times a second; they are logged at this interval."""
_TEXTS_MAX = 100


class NotAgain(logging.Filter):
    """Drops messages repeated within `REPEATED_AFTER_S`."""

    def __init__(self) -> None:
        super().__init__()
        self._said_at_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        text = record.getMessage()
        if record.created < self._said_at_s.get(text, 0.0) + REPEATED_AFTER_S:
            return False
        if len(self._said_at_s) >= _TEXTS_MAX:
            self._said_at_s.clear()
        self._said_at_s[text] = record.created
        return True


_driver_log = logging.getLogger("rioni.zookeeper.driver")
"""Log of kazoo: why a connection broke, or can't be made."""
_driver_log.addFilter(NotAgain())


class Interrupted(Unavailable):
    """The connection failed before the response: the request may have been executed or not."""


def new_client(hosts: str, *, handler: Any, whole: bool = False, **options: Any) -> KazooClient:
    """Create a client; `whole` ignores the path after the hosts, to access all nodes."""
    retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, sleep_func=handler.sleep_func)
    if whole:
        hosts = hosts.partition("/")[0]
    try:
        return KazooClient(hosts, handler=handler, connection_retry=retry, logger=_driver_log, **options)
    except ValueError as ex:
        raise Unavailable(f"The setting `zookeeper` can't be used: {hosts!r} ({ex}).") from ex


def new_handler() -> Any:
    """Create a client's handler: greenlets if the process is patched, else threads. It can disconnect."""
    return _GeventHandler() if monkey.is_module_patched("threading") else _ThreadingHandler()


class _Disconnects:
    """A handler that can close the connection in use; requests through it are never blocked by the send loop."""

    _connection: socket.socket | None = None

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect to a server."""
        self._connection = super().create_connection(*args, **kwargs)  # type: ignore[misc]  # of the handlers below
        return self._connection

    def create_socket_pair(self) -> Any:
        """Create the pipe that wakes the send loop."""
        return waking_pair()

    def disconnect(self) -> None:
        """Make the client detect a broken connection, so that it connects to another server."""
        with contextlib.suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)


class _GeventHandler(_Disconnects, SequentialGeventHandler):  # type: ignore[misc]  # kazoo has no types
    pass


class _ThreadingHandler(_Disconnects, SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    pass


def transaction_result(answers: Any) -> list[Any] | None:
    """Return the answers of a transaction, None if a node was not as expected.

    Raises:
        Unavailable: the transaction failed for another reason.
    """
    errors = [each for each in answers if isinstance(each, KazooException) and not isinstance(each, _ROLLED_BACK)]
    if not errors:
        return list(answers)
    if isinstance(errors[0], REFUSALS):
        return None
    raise _unavailable(errors[0]) from errors[0]


def result(pending: Any) -> Any:
    """Return the answer to a request, or its error if that is one of `REFUSALS`.

    Raises:
        Interrupted: there is no answer.
        Unavailable: the request failed with another error.
    """
    if not pending.ready():
        raise Interrupted("ZooKeeper does not respond. Try again later.")
    try:
        return pending.get(block=False)
    except REFUSALS as ex:
        return ex
    except _INTERRUPTIONS as ex:
        raise Interrupted("Connection to ZooKeeper lost. Try again later.") from ex
    except KazooException as ex:
        raise _unavailable(ex) from ex


def _unavailable(error: KazooException) -> Unavailable:
    if isinstance(error, NoAuthError | AuthFailedError):
        return Unavailable("ZooKeeper authentication failed. Check the setting `zookeeper_options`.")
    if isinstance(error, ConnectionClosedError):
        return Unavailable("The connection to ZooKeeper is closed: the broker is stopping. Try again on another node.")
    return Unavailable(f"ZooKeeper request failed: {error!r}. Try again later.")


# --- Builds multi-operation requests ---

ANY = -1
"""Matches any version."""


class Operation(NamedTuple):
    """An operation of a transaction, which is atomic."""

    method: str
    path: str
    arguments: tuple[Any, ...] = ()


def create(path: str, data: bytes = b"") -> Operation:
    """Create a persistent node."""
    return Operation("create", path, (data,))


def begin(path: str) -> Operation:
    """Create an ephemeral node, which ends with the session."""
    return Operation("create", path, (b"", None, True))


def delete(path: str) -> Operation:
    """Delete a node without children."""
    return Operation("delete", path)


def put(path: str, data: bytes, version: int = ANY) -> Operation:
    """Set a node's data, if it has this version."""
    return Operation("set_data", path, (data, version))


def check(path: str, version: int = ANY) -> Operation:
    """Check that a node has this version, without changing it."""
    return Operation("check", path, (version,))


def send(client: KazooClient, operations: Sequence[Operation]) -> Any:
    """Send a transaction, and return its pending result."""
    transaction = client.transaction()
    for operation in operations:
        getattr(transaction, operation.method)(operation.path, *operation.arguments)
    return transaction.commit_async()
