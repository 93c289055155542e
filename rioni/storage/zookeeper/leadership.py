"""The single nodes of a path in ZooKeeper: that of the leader, and that of the installation."""

from functools import partial
from typing import Any

from kazoo.exceptions import NoNodeError

from rioni.domain.errors import Unavailable
from rioni.domain.system.anchors import DataMismatch
from rioni.storage.threads import run_on_hub
from rioni.storage.zookeeper.driver import REFUSALS
from rioni.storage.zookeeper.nodes import INSTALLATION, LEADER
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


# --- Ties a ZooKeeper path to an installation, and detects lost or rolled-back data ---


class PathMark:
    """The node with the id of the installation. Its version is the sequence number of the path."""

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._advanced_at = 0
        """The last ZooKeeper change that the sequence number covers."""

    def claim(self, installation: str, mark: int | None = None) -> int:
        """Claim the path for an installation, if it is unclaimed; blocks.

        Args:
            installation: id recorded in the registry.
            mark: the minimum sequence number of the path; None if it may be new.

        Returns:
            The sequence number.

        Raises:
            DataMismatch: the path is empty although it has a mark, or is older than the mark.
            Unavailable: another installation uses the path, or as `ZooKeeperSession.request`.
        """
        own, path = installation.encode(), self._session.path
        found = self._read()
        if isinstance(found, NoNodeError):
            if mark is not None:
                lost = (
                    f"The path {path} of ZooKeeper does not hold what was written there: it was emptied, or is not the "
                    "one that was used before. Committed cursors are gone."
                )
                raise DataMismatch([lost])
            # Another node may be faster.
            self._session.request(lambda client: client.create_async(INSTALLATION, own))
            found = self._read()
        if isinstance(found, REFUSALS):
            raise Unavailable(f"The path {path} of ZooKeeper is being emptied. Try again later.")
        data, stat = found
        if data != own:
            raise Unavailable(
                f"The path {path} of ZooKeeper belongs to another installation, {data.decode(errors='replace')}; "
                f"the registry of this node is that of {installation}. Name another path in the setting "
                "`zookeeper`. If the database was replaced on purpose, delete everything under the path first: "
                "the cursors there belong to the database that is gone."
            )
        if mark is not None and stat.version < mark:
            older = (
                f"The path {path} of ZooKeeper is older than the registry: its state has the number {stat.version}, "
                f"and {mark} was recorded. Committed cursors would go back."
            )
            raise DataMismatch([older])
        return int(stat.version)

    def advance(self, installation: str) -> int | None:
        """Raise the sequence number if ZooKeeper has changed since the last call; may block.

        Args:
            installation: id recorded in the registry.

        Returns:
            The sequence number, None if nothing has changed.

        Raises:
            Unavailable: ZooKeeper does not answer, or has lost its data.
        """
        if not self._session.registered or self._session.last_change <= self._advanced_at:
            return None
        own = installation.encode()
        found = self._session.request(lambda client: client.set_async(INSTALLATION, own))[0]
        if isinstance(found, REFUSALS):
            raise Unavailable(
                f"The path {self._session.path} of ZooKeeper has lost its data. Stop all nodes, restore ZooKeeper or "
                "run `rioni accept-loss`, and start them again."
            )
        self._advanced_at = found.mzxid
        return int(found.version)

    def _read(self) -> Any:
        # A server may not know the latest changes.
        return self._session.request(
            lambda client: client.sync_async(INSTALLATION), lambda client: client.get_async(INSTALLATION)
        )[1]
