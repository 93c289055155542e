"""The port to notifications, which wake waiters in all processes when something has changed."""

from collections.abc import Iterable
from typing import Protocol


LOG_KEY = "log"
"""The key notified when the internal log has grown."""
TOPIC, SUBSCRIPTION = "topic:", "subscription:"
"""Beginnings of the keys notified when the events of a topic, or the state of a subscription, have changed.

They raise its flag too; see `rioni.domain.ports.change_flags`.
"""
CHANGED = "changed:"
"""The beginning of keys that raise the flag of a topic or subscription, and wake nobody."""


class Waiter(Protocol):
    """Waits for notifications about some keys, from this process or another."""

    def wait(self, timeout_s: float) -> bool:
        """Block this greenlet until a notification since the last call, or the time-out; return whether notified."""

    def close(self) -> None:
        """Stop watching."""


class Notifier(Protocol):
    """Wakes waiters in any process of the broker. A notification may be lost, so waits have time-outs."""

    def notify(self, *keys: str) -> None:
        """Wake all waiters that watch one of the keys. Never blocks, never raises."""

    def watch(self, keys: Iterable[str]) -> Waiter:
        """Begin to watch; notifications from now on are not missed."""

    def version(self, key: str) -> int:
        """A number, 0 at least, that changes with each notification of a watched key, before waiters are woken."""
