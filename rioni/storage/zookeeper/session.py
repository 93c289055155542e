"""Wraps a ZooKeeper session: requests, retries, heartbeats, and how long the session is safe.

One session for each worker process: its ephemeral nodes end with it. ZooKeeper ends a session after receiving no
heartbeat for the session timeout. This side measures from the sending of the last answered request, and uses only two
thirds of that time, so it always notices first: see `is_session_safe`.
"""

import contextlib
import os
import socket
import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import Callback, KazooState, KeeperState

from rioni.domain.errors import Unavailable
from rioni.domain.ports.host import Clock, direct
from rioni.storage.group_commit import GroupCommit, WriteJob, no_follow_up
from rioni.storage.threads import HubThread
from rioni.storage.zookeeper.driver import (
    REFUSALS,
    UNREACHABLE,
    Interrupted,
    Operation,
    new_client,
    new_handler,
    result,
    send,
    transaction_result,
)
from rioni.storage.zookeeper.nodes import ROOTS, WORKERS


Request = Callable[[KazooClient], Any]
"""Given a client, sends a request and returns its pending result."""

SAFE_SHARE = 2 / 3
"""The share of the session timeout for which an answer proves that the session is alive.

The rest covers clock differences, and the time that a follower takes to report the heartbeat to its leader.
"""

STUCK_SHARE = 1 / 5
"""A server that does not answer for this share of the session timeout is replaced by another one."""

HEARTBEATS = 10
"""Minimum number of heartbeats per session timeout."""

_NEVER_REACHED = "no server can be reached. Check the servers and the settings `zookeeper` and `zookeeper_options`."

_GIVEN_UP = (KeeperState.CLOSED, KeeperState.AUTH_FAILED)

_log = structlog.get_logger("rioni.zookeeper")


class _Entry(msgspec.Struct, frozen=True):
    """The entry of a worker in the registry of workers."""

    host: str
    pid: int
    position: int
    about: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """The announcement of the worker, as JSON."""


class ZooKeeperSession:
    """A ZooKeeper session, for the greenlets of one hub, or in an unpatched process for any thread."""

    def __init__(self, hosts: str, *, clock: Clock, session_timeout_s: float = 10.0, **options: Any) -> None:
        """Connect; blocks until a server answers.

        Args:
            hosts: `host:port`, separated by commas, followed by the path that contains all nodes.
            clock: used for deadlines.
            session_timeout_s: after this time ZooKeeper considers this process dead. The servers must allow it.
            options: further ones of `KazooClient`, for TLS and authentication.

        Raises:
            Unavailable: no server responds, or authentication failed.
        """
        self.hub_thread = HubThread()
        self._clock, self.timeout_s = clock, session_timeout_s
        self._connect = partial(new_client, hosts, timeout=session_timeout_s, **options)
        self.handler = new_handler()
        self._client = self._connect(handler=self.handler)
        self._listeners: list[Callable[[], None]] = []
        self._connected = threading.Event()
        self._position = 0
        self._about: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
        """The announcement of this process to the others, as JSON."""
        self._registered = False
        self.worker = _new_name()
        """The id of this session; another session never has it."""
        self._answered_at_s = clock.monotonic()
        self._arrivals = 0
        """Number of answered requests."""
        self._was_safe = True
        self._closed = threading.Event()
        self._barriers: GroupCommit[WriteJob] = GroupCommit(self._sync, direct)
        self._client.add_listener(self._note_state)
        self._client.start_async()
        try:
            if not self._connected.wait(session_timeout_s):
                raise Unavailable(_NEVER_REACHED)  # noqa: TRY301 - with the hosts, as what follows
            self._lay_out()
            self._register()
        except Unavailable as ex:
            self._stop()
            raise Unavailable(f"ZooKeeper at {hosts} can't be used: {ex}") from ex
        self._heartbeat_thread = threading.Thread(target=self._send_heartbeats, name="rioni-zookeeper", daemon=True)
        self._heartbeat_thread.start()

    # --- Requests ---

    def request(self, *requests: Request) -> list[Any]:
        """Send all requests at once and wait for all answers.

        Returns:
            The answer to each request, or its error if that is one of `REFUSALS`.

        Raises:
            Interrupted: the connection broke, or there is no answer in time; some requests may have been executed.
            Unavailable: there is no connection; nothing was executed.
        """
        if not self._connected.wait(self.timeout_s) or self._closed.is_set():
            raise Unavailable(UNREACHABLE)
        sent_at_s = self._clock.monotonic()
        pending = [request(self._client) for request in requests]
        for each in pending:
            each.wait(max(0.0, sent_at_s + self.timeout_s - self._clock.monotonic()))
            self._arrivals += each.ready()
        answers = [result(each) for each in pending]
        self._answered_at_s = max(self._answered_at_s, sent_at_s)
        return answers

    def transaction(self, *operations: Operation) -> list[Any] | None:
        """Execute all operations in one transaction, or none.

        Returns:
            The answers, None if a node was not as expected.

        Raises:
            Unavailable: as `request`.
        """
        return transaction_result(self.request(partial(send, operations=operations))[0])

    def transactions(self, transactions: Sequence[Sequence[Operation]]) -> list[bool | None]:
        """Execute several transactions at once, each atomic.

        Returns:
            For each: True if executed, False if its nodes were not as expected, None if the outcome is unknown.

        Raises:
            Unavailable: there is no connection; nothing was executed.
        """
        try:
            answers = self.request(*[partial(send, operations=operations) for operations in transactions])
        except Interrupted:
            return [None] * len(transactions)
        return [transaction_result(answer) is not None for answer in answers]

    def request_with_retry(self, *requests: Request) -> list[Any]:
        """Send idempotent requests: retried once if the connection breaks."""
        try:
            return self.request(*requests)
        except Interrupted:
            return self.request(*requests)

    def barrier(self, *, patient: bool = False) -> None:
        """Return when all earlier changes on any node are visible here; concurrent callers share one request.

        Args:
            patient: whether to wait for a missing connection.

        Raises:
            Unavailable: as `request`.
        """
        if not patient and not self.connected:
            raise Unavailable(UNREACHABLE)
        self._barriers.submit(WriteJob(size=0), 2 * self.timeout_s)

    def watched(self, request: Request, done: Callable[[Any], None]) -> None:
        """Send a request, and pass its result to `done`, after all earlier notifications; never blocks.

        `done` and the watches of requests run in sequence, and must not block.
        """

        def arrived(result: Any) -> None:
            self._arrivals += 1
            self.handler.dispatch_callback(Callback("done", done, (result,)))

        request(self._client).rawlink(arrived)

    def _sync(self, _group: Sequence[WriteJob]) -> Callable[[], None]:
        self.request(lambda client: client.sync_async("/"))
        handled = threading.Event()
        self.handler.dispatch_callback(Callback("handled", handled.set, ()))
        if not handled.wait(self.timeout_s):
            raise Interrupted("Process overloaded: a ZooKeeper notification was not handled in time. Try again later.")
        return no_follow_up

    # --- State and lifetime ---

    @property
    def connected(self) -> bool:
        """Whether a server is connected, by the last known state."""
        return self._connected.is_set()

    @property
    def registered(self) -> bool:
        """Whether a server is connected, and this session is registered as a worker, by the last known state."""
        return self.connected and self._registered

    @property
    def path(self) -> str:
        """The path that contains all nodes."""
        return str(self._client.chroot or "/")

    @property
    def last_change(self) -> int:
        """The zxid of the last change that this process has seen."""
        return int(self._client.last_zxid)

    def is_session_safe(self) -> bool:
        """Whether the session is certainly alive. Cheap."""
        return self._registered and self.safe_for_s() > 0

    def safe_for_s(self) -> float:
        """Seconds for which the session is certainly alive; negative if that time is over."""
        return self._answered_at_s + SAFE_SHARE * self.timeout_s - self._clock.monotonic()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call a function when the connection breaks or returns, and when the session is no longer certainly alive.

        It must neither block nor send requests: it may run in the send loop.
        """
        self._listeners.append(listener)

    def publish_position(self, position: int) -> None:
        """Publish this worker's position in the log in the registry of workers; without ZooKeeper, later."""
        if position == self._position or not self.registered:
            return
        before, self._position = self._position, position
        try:
            self._publish_entry()
        except Unavailable:
            self._position = before

    def announce(self, about: bytes) -> None:
        """Publish JSON about this worker in the registry of workers; without ZooKeeper, when it is registered again.

        Raises:
            Unavailable: the connection broke.
        """
        self._about = msgspec.Raw(about)
        if self.registered:
            self._publish_entry()

    def announced(self) -> dict[str, bytes]:
        """Return the announcements of the living workers, by their names.

        Raises:
            Unavailable: as `request`.
        """
        self.barrier()
        (names,) = self.request_with_retry(lambda client: client.get_children_async(WORKERS))
        paths = [f"{WORKERS}/{name}" for name in names]
        nodes = self.request_with_retry(*[lambda client, path=path: client.get_async(path) for path in paths])
        entries = {
            name: msgspec.json.decode(node[0], type=_Entry)
            for name, node in zip(names, nodes, strict=True)
            if not isinstance(node, REFUSALS)
        }
        return {name: bytes(each.about) for name, each in entries.items() if each.about is not msgspec.UNSET}

    def _publish_entry(self) -> None:
        path, entry = f"{WORKERS}/{self.worker}", self._entry()
        self.request(lambda client: client.set_async(path, entry))

    def _entry(self) -> bytes:
        """Return the entry of this worker in the registry."""
        return msgspec.json.encode(_Entry(socket.gethostname(), os.getpid(), self._position, self._about))

    def close(self) -> None:
        """End the session, and everything that depends on it, now."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._barriers.close()
        self._heartbeat_thread.join(self.timeout_s)
        self._stop()

    def _stop(self) -> None:
        self._client.remove_listener(self._note_state)
        self._client.stop()
        self._client.close()

    def _note_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._connected.set()
            if self._registered or not self._was_safe:
                _log.info("ZooKeeper answers again")
        else:
            self._connected.clear()
        if state == KazooState.LOST:
            # Ephemeral nodes are gone, or soon will be: the id of the lost session is not used again.
            self._registered = False
            self.worker = _new_name()
        self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in self._listeners:
            listener()

    def _lay_out(self) -> None:
        """Create the parent nodes, if this is the first process."""
        if self.request(lambda client: client.exists_async("/"))[0] is None:
            # The path itself must be created by a client that is not restricted to it.
            whole, path = self._connect(handler=new_handler(), whole=True), self._client.chroot
            whole.start_async().wait(self.timeout_s)
            try:
                whole.ensure_path(path)
            except KazooException as ex:
                raise Unavailable(f"its path {path} can't be created ({ex!r}).") from ex
            finally:
                whole.stop()
                whole.close()
        self.request(*[lambda client, path=path: client.create_async(path) for path in ROOTS])

    def _register(self) -> None:
        name, entry = self.worker, self._entry()
        self.request(lambda client: client.create_async(f"{WORKERS}/{name}", entry, ephemeral=True))
        self._registered = name == self.worker

    def _send_heartbeats(self) -> None:
        """Send heartbeats, disconnect from unresponsive servers, and notify when the session may be lost."""
        while not self._closed.wait(self._until_heartbeat_s()):
            with contextlib.suppress(Unavailable):
                if self.connected:
                    self._heartbeat()
                elif self._client.client_state in _GIVEN_UP:
                    self._client.start_async()
            if self._was_safe and not self.is_session_safe():
                _log.error("the session with ZooKeeper may be lost: all streams of subscriptions end")
                self._notify_listeners()
            self._was_safe = self.is_session_safe()

    def _until_heartbeat_s(self) -> float:
        every_s = self.timeout_s / HEARTBEATS
        return min(every_s, safe_for_s) if (safe_for_s := self.safe_for_s()) > 0 else every_s

    def _heartbeat(self) -> None:
        if not self._registered:
            self._register()
            self._notify_listeners()
        sent_at_s = self._clock.monotonic()
        pending = self._client.exists_async("/")
        while not pending.ready():
            # A server that answers other pending requests is not stuck.
            arrivals = self._arrivals
            pending.wait(STUCK_SHARE * self.timeout_s)
            if arrivals == self._arrivals and not pending.ready():
                self.handler.disconnect()
                return
        if pending.successful():
            self._answered_at_s = max(self._answered_at_s, sent_at_s)


def _new_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(6).hex()}"
