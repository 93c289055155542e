"""The port to the event stores of all storages."""

from collections.abc import Mapping
from typing import Protocol

from rioni.domain.ports.event_store import EventStore


class EventStores(Protocol):
    """The event stores of all storages, each opened when it is first used."""

    def of(self, storage_id: str) -> EventStore:
        """The store of a storage. Cheap, but for the first time, which may block the caller.

        Raises:
            Unavailable: there is no such storage, or this installation can't use it.
        """

    def opened(self) -> Mapping[str, EventStore]:
        """The stores that are open, by storage. Never blocks."""

    def close(self) -> None:
        """Close all stores."""
