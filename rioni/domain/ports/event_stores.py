"""The port to the event stores of all storages."""

from collections.abc import Mapping
from typing import Protocol

from rioni.domain.ports.event_store import EventStore


class EventStores(Protocol):
    """The event stores of all storages, each opened on first use."""

    def of(self, storage_id: str) -> EventStore:
        """The store of a storage. Cheap, except for the first call, which may block the caller.

        Raises:
            Unavailable: there is no such storage, or this installation can't use it.
        """

    def opened(self) -> Mapping[str, EventStore]:
        """The open stores, by storage. Never blocks."""

    def close(self) -> None:
        """Close all stores."""
