"""Caches ZooKeeper nodes with watches: each is read once, and again after a change notification."""

import threading  # threads: greenlets only: events with deadlines, locks for changes in memory
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kazoo.exceptions import NoNodeError

from rioni.storage.zookeeper.driver import UNREACHABLE, Interrupted
from rioni.storage.zookeeper.session import ZooKeeperSession


NODES_MAX = 50_000
"""Maximum number of cached nodes; the oldest are evicted first, unless they are followed."""


REREAD_NODES = 100
"""Number of nodes reread at a time after reconnecting, so that other requests, mainly heartbeats, are not delayed."""


class Node(NamedTuple):
    """A node as last read."""

    data: bytes
    version: int
    """Version of the data; for children, their change counter."""
    children: frozenset[str] = frozenset()


class _Watch(NamedTuple):
    """Receives the next change of a node; rereading it adds no watch, as the driver keeps equal watches once."""

    invalidate: Callable[[str], None]
    path: str

    def __call__(self, _event: Any) -> None:
        self.invalidate(self.path)


class _Reading:
    """The result of reading a node, valid until the node changes."""

    def __init__(self, *, again: bool) -> None:
        self.again = again
        """Whether it is a reread after a change, not requested by a caller."""
        self.done = threading.Event()
        self.node: Node | None = None
        self.failed = False
        self.invalidated = False


class NodeCache:
    """Caches nodes by path; the children of a node are cached under its path with a trailing slash.

    A read after `ZooKeeperSession.barrier` returns all changes made anywhere before.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        follow: Callable[[str], bool],
        on_change: Callable[[str, bool], None],
        *,
        nodes_max: int = NODES_MAX,
    ) -> None:
        """Start empty.

        Args:
            session: sends requests and sets watches.
            follow: whether a path is followed, so that it is reread as soon as it changes.
            on_change: receives the followed paths that have changed, and whether they are cached again, or can't be
                because there is no connection; must not block.
            nodes_max: maximum number of cached nodes.
        """
        self._session, self._follow, self._on_change, self._nodes_max = session, follow, on_change, nodes_max
        self._readings: dict[str, _Reading] = {}
        self._written: dict[str, Node] = {}
        session.listen(lambda: session.handler.spawn(self._resume))

    def nodes(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the current nodes, None for those that don't exist; blocks for changed ones.

        Raises:
            Interrupted: there is no connection, or it broke.
        """
        readings = [self._reading(path) for path in paths]
        for reading in readings:
            if not reading.done.wait(self._session.timeout_s) or reading.failed:
                raise Interrupted("Connection to ZooKeeper lost. Try again later.")
        return [reading.node for reading in readings]

    def node(self, path: str) -> Node | None:
        """Return one node, as `nodes`."""
        return self.nodes([path])[0]

    def last_known(self, path: str) -> Node | None:
        """Return a node as last read; never blocks."""
        reading = self._readings.get(path)
        return reading.node if reading else None

    def cached(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the cached nodes, possibly stale: for callers that verify them afterwards.

        PERF: repeated commits from the same process need not read its own writes.
        """
        # Taken before waiting: meanwhile a node that is known may be invalidated, and its rereading not be done.
        known = {path: self._newest(path) for path in paths if path in self._written or self._is_good(path)}
        unknown = [path for path in paths if path not in known]
        read = dict(zip(unknown, self.nodes(unknown), strict=True))
        return [known[path] if path in known else read[path] for path in paths]

    def prefetch(self, paths: Iterable[str]) -> None:
        """Start reading nodes, with a notification when they are cached; never blocks."""
        for path in paths:
            if path not in self._readings and self._session.connected:
                self._read(path, again=True)

    def wrote(self, path: str, node: Node) -> None:
        """Cache a node written by this process."""
        if len(self._written) >= self._nodes_max:
            self._written.clear()
        self._written[path] = node

    def drop_written(self, paths: Sequence[str]) -> None:
        """Drop the written nodes that other processes have changed or deleted."""
        for path in paths:
            self._written.pop(path, None)

    def _newest(self, path: str) -> Node | None:
        reading, written = self._readings.get(path), self._written.get(path)
        read = reading.node if reading and reading.done.is_set() else None
        if written is None or (read is not None and read.version >= written.version):
            return read
        return written

    def _is_good(self, path: str) -> bool:
        reading = self._readings.get(path)
        return reading is not None and reading.done.is_set() and not reading.invalidated and not reading.failed

    def _reading(self, path: str) -> _Reading:
        reading = self._readings.get(path)
        if reading is None or reading.invalidated or reading.failed:
            if not self._session.connected:
                raise Interrupted(UNREACHABLE)
            reading = self._read(path)
        return reading

    # --- Reading; from here on nothing blocks ---

    def _read(self, path: str, *, again: bool = False) -> _Reading:
        reading, before = _Reading(again=again), self._readings.pop(path, None)
        reading.node = before.node if before else None  # for `last_known`
        if len(self._readings) >= self._nodes_max:
            for each in list(self._readings)[: self._nodes_max // 10]:
                if not self._follow(each):
                    del self._readings[each]
        self._readings[path] = reading
        self._request(path, reading)
        return reading

    def _request(self, path: str, reading: _Reading) -> None:
        watch, have = _Watch(self._invalidate, path), partial(self._have, path, reading)
        if path.endswith("/"):
            parent = path[:-1]
            self._session.watched(
                lambda client: client.get_children_async(parent, watch=watch, include_data=True), have
            )
        else:
            self._session.watched(lambda client: client.get_async(path, watch=watch), have)

    def _have(self, path: str, reading: _Reading, answer: Any) -> None:
        error = answer.exception
        if error is None:
            value, stat = answer.get(block=False)
            if path.endswith("/"):
                reading.node = Node(b"", stat.cversion, frozenset(value))
            else:
                reading.node = Node(value, stat.version)
            self._finish(path, reading)
        elif isinstance(error, NoNodeError) and not path.endswith("/"):
            watch = _Watch(self._invalidate, path)
            self._session.watched(
                lambda client: client.exists_async(path, watch=watch), partial(self._have_not, path, reading)
            )
        else:
            if isinstance(error, NoNodeError):
                # There are no watches on children of missing nodes: callers that need them read again.
                reading.node, reading.invalidated = None, True
            else:
                reading.failed = True
            self._finish(path, reading)

    def _have_not(self, path: str, reading: _Reading, answer: Any) -> None:
        if answer.exception is None and answer.get(block=False) is not None:
            self._request(path, reading)  # created in between
            return
        if answer.exception is not None:
            reading.failed = True
        else:
            reading.node = None
        self._finish(path, reading)

    def _finish(self, path: str, reading: _Reading) -> None:
        reading.done.set()
        if self._follow(path):
            if reading.invalidated and not path.endswith("/"):
                self._read(path, again=True)
            elif reading.again:
                self._on_change(path, not reading.failed)

    def _invalidate(self, path: str) -> None:
        reading = self._readings.get(path)
        if reading is None:
            return
        reading.invalidated = True
        if not reading.done.is_set():
            return
        if self._follow(path) and self._session.connected:
            self._read(path, again=True)
        else:
            self._on_change(path, False)

    # --- Loss and return of the connection ---

    def _resume(self) -> None:
        """Reread all followed nodes once there is a connection, and notify in any case."""
        paths = list(self._readings)
        for start in range(0, len(paths), REREAD_NODES):
            again = map(self._read_again, paths[start : start + REREAD_NODES])
            for reading in [reading for reading in again if reading]:
                reading.done.wait(self._session.timeout_s)
            time.sleep(0)

    def _read_again(self, path: str) -> _Reading | None:
        reading = self._readings.get(path)
        if reading is None or not self._follow(path):
            return None
        if self._session.connected and (reading.invalidated or reading.failed):
            return self._read(path, again=True)
        self._on_change(path, False)
        return None
