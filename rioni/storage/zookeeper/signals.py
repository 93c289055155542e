"""Notifies waiters on any node of the cluster of changes.

Changes of subscriptions come from ZooKeeper, those of topics from the Kafka tail follower, those of the log from the
database listener; the processes of one machine use the local signals as well.
"""

from collections.abc import Collection, Iterable

from rioni.domain.ports.host import CHANGED, SUBSCRIPTION, Waiter
from rioni.storage.embedded.signals import EmbeddedSignals, EmbeddedWatch
from rioni.storage.threads import run_on_hub
from rioni.storage.zookeeper.session import ZooKeeperSession
from rioni.storage.zookeeper.subscriptions import SubscriptionCache


class ZooKeeperSignals:
    """The port `Notifier`: local signals, and for subscriptions those of the whole cluster."""

    def __init__(self, session: ZooKeeperSession, local: EmbeddedSignals) -> None:
        """Start without watches.

        Args:
            session: the session of this process.
            local: notifies the processes of this machine.
        """
        self.hub_thread = session.hub_thread
        self.cache = SubscriptionCache(session, self._notify_waiters, self._raise_flag)
        """The subscription cache of this process."""
        self._local = local

    def notify(self, *keys: str) -> None:
        """Wake all watchers of the keys, except those of subscriptions, done by ZooKeeper. Never blocks or raises."""
        self._local.notify(*(key for key in keys if not key.startswith(SUBSCRIPTION)))

    @run_on_hub
    def watch(self, keys: Iterable[str]) -> Waiter:
        """Start watching; notifications from now on are not missed.

        Raises:
            Unavailable: the socket can't be opened.
        """
        wanted = frozenset(keys)
        watch = _Watch(self._local.watch(wanted), self.cache)
        try:
            for key in wanted:
                if key.startswith(SUBSCRIPTION):
                    watch.follow(key.removeprefix(SUBSCRIPTION))
        except BaseException:
            watch.close()
            raise
        return watch

    def version(self, key: str) -> int:
        """Return a number that changes with each notification of a watched key, before watchers are woken."""
        return self._local.version(key)

    def close(self) -> None:
        """Close the sockets."""
        self._local.close()

    def _raise_flag(self, subscription_id: str) -> None:
        self._local.notify(CHANGED + subscription_id)

    def _notify_waiters(self, subscription_id: str, streams: Collection[str] | None) -> None:
        if streams is None:
            self._local.notify_here(SUBSCRIPTION + subscription_id)
        else:
            self._local.notify_here(*(f"stream:{stream_id}" for stream_id in streams))


class _Watch:
    """The port `Waiter`."""

    def __init__(self, local: EmbeddedWatch, cache: SubscriptionCache) -> None:
        self._local, self._cache = local, cache
        self._followed: list[str] = []

    def follow(self, subscription_id: str) -> None:
        """Watch the changes of a subscription too."""
        self._followed.append(subscription_id)
        self._cache.follow(subscription_id)

    def wait(self, timeout_s: float) -> bool:
        """Block until a notification has arrived since the last call, or until the timeout; return whether it has."""
        return self._local.wait(timeout_s)

    def close(self) -> None:
        """Stop watching."""
        self._local.close()
        while self._followed:
            self._cache.unfollow(self._followed.pop())
