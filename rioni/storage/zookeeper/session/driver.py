"""Configures ZooKeeper clients, and translates ZooKeeper's errors."""

import contextlib
import logging
import socket
from typing import Any

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
from rioni.storage.zookeeper.session.wakeup_pipe import waking_pair


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
