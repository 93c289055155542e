"""The port to the read models, which are written in the transaction that appends to the log."""

from collections.abc import Sequence
from typing import Any, Protocol

from rioni.domain.ports.event_log import LogEntry
from rioni.domain.subscriptions.subscription import Subscription
from rioni.domain.system.storages import StorageEntry
from rioni.domain.timelines.timeline import Timeline


class ReadModels(Protocol):
    """Read models as seen by a command, inside its own transaction."""

    def state(self, connection: Any, kind: str, key: str) -> tuple[Any, int]:
        """The state of an aggregate, None if it does not exist, and the version of its stream."""

    def subscriptions_of(self, connection: Any, event_type: str) -> Sequence[Subscription]:
        """All subscriptions to an event type."""

    def storages(self, connection: Any) -> Sequence[StorageEntry]:
        """All storages by id."""

    def timelines_in(self, connection: Any, storage_id: str) -> Sequence[Timeline]:
        """All timelines in a storage, of all event types."""

    def apply(self, connection: Any, entries: Sequence[LogEntry]) -> None:
        """Fold entries, which directly follow the last applied ones, into the read models."""
