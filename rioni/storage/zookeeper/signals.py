"""Wakes up waiters on any node of the cluster when something has changed.

Changes of subscriptions are heard of from ZooKeeper, those of topics by whoever follows Kafka, those of the log by
whoever listens to the database; among the processes of a machine the signals of this machine go on as they are.
"""

from collections.abc import Collection, Iterable

from rioni.domain.ports.notifier import Waiter
from rioni.storage.embedded.signals import EmbeddedSignals, EmbeddedWatch
from rioni.storage.hub_thread import run_on_hub
from rioni.storage.zookeeper.session.session import ZooKeeperSession
from rioni.storage.zookeeper.subscriptions import SubscriptionCache


SUBSCRIPTION = "subscription:"


class ZooKeeperSignals:
    """The port `Notifier`: those of the machine, and for subscriptions those of all machines."""

    def __init__(self, keeper: ZooKeeperSession, local: EmbeddedSignals) -> None:
        """Begin without watches.

        Args:
            keeper: the session of this process.
            local: wakes the processes of this machine.
        """
        self.home = keeper.home
        self.known = SubscriptionCache(keeper, self._tell)
        """What this process knows of subscriptions."""
        self._local = local

    def notify(self, *keys: str) -> None:
        """Wake who watches one of the keys; of subscriptions ZooKeeper tells by itself. Never blocks, never raises."""
        self._local.notify(*(key for key in keys if not key.startswith(SUBSCRIPTION)))

    @run_on_hub
    def watch(self, keys: Iterable[str]) -> Waiter:
        """Begin to watch; what is notified from now on is not missed.

        Raises:
            Unavailable: the socket can't be opened.
        """
        wanted = frozenset(keys)
        watch = _Watch(self._local.watch(wanted), self.known)
        try:
            for key in wanted:
                if key.startswith(SUBSCRIPTION):
                    watch.follow(key.removeprefix(SUBSCRIPTION))
        except BaseException:
            watch.close()
            raise
        return watch

    def generation(self, key: str) -> int:
        """A number that changes with each notification of a watched key, before anyone is woken."""
        return self._local.generation(key)

    def close(self) -> None:
        """Close the sockets."""
        self._local.close()

    def _tell(self, subscription_id: str, streams: Collection[str] | None) -> None:
        if streams is None:
            self._local.notify_here(SUBSCRIPTION + subscription_id)
        else:
            self._local.notify_here(*(f"stream:{stream_id}" for stream_id in streams))


class _Watch:
    """The port `Waiter`."""

    def __init__(self, local: EmbeddedWatch, known: SubscriptionCache) -> None:
        self._local, self._known = local, known
        self._followed: list[str] = []

    def follow(self, subscription_id: str) -> None:
        """Hear of the changes of a subscription too."""
        self._followed.append(subscription_id)
        self._known.follow(subscription_id)

    def wait(self, timeout_s: float) -> bool:
        """Block until something was heard since the last call, or the time is over; say which."""
        return self._local.wait(timeout_s)

    def close(self) -> None:
        """Stop watching."""
        self._local.close()
        while self._followed:
            self._known.unfollow(self._followed.pop())
