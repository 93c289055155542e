"""Elects the leader of the cluster by an ephemeral node."""

from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from rioni.storage.threads import run_on_hub
from rioni.storage.zookeeper.paths import LEADER
from rioni.storage.zookeeper.session import ZooKeeperSession


class ZooKeeperLeadership:
    """Implements the port `Leadership`; a worker loses it with its session, and notices before all others."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self.hub_thread = session.hub_thread
        self._session = session
        self._worker = ""
        self._requesting = self._closed = False

    def held(self) -> bool:
        """Whether this worker is the leader to its knowledge; if not, it tries to become it. Never blocks."""
        if self._worker == self._session.worker:
            return self._session.is_session_safe()
        self._apply()
        return False

    @run_on_hub
    def close(self) -> None:
        """Release the leadership, so that another worker can take it."""
        self._closed = True
        if self._worker == self._session.worker and self._session.connected:
            self._session.request(lambda client: client.delete_async(LEADER))
        self._worker = ""

    def _apply(self) -> None:
        if not self._requesting and not self._closed and self._session.is_session_safe() and self._session.connected:
            self._requesting = True
            # Read first: each attempt to create a node is logged by all servers.
            self._session.watched(lambda client: client.get_async(LEADER), self._found)

    def _found(self, answer: Any) -> None:
        worker = self._session.worker
        if isinstance(answer.exception, NoNodeError) and not self._closed:
            made = partial(self._made, worker)
            self._session.watched(lambda client: client.create_async(LEADER, worker.encode(), ephemeral=True), made)
            return
        self._requesting = False
        # It may be this worker's own node, whose creation was not acknowledged.
        if answer.exception is None and answer.get(block=False)[0] == worker.encode() and not self._closed:
            self._worker = worker

    def _made(self, worker: str, answer: Any) -> None:
        self._requesting = False
        # If the session has changed in between, the node of the old one is as good as gone.
        if answer.exception is None and worker == self._session.worker:
            self._worker = worker
