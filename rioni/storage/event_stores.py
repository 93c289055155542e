"""Which event store stands behind a storage: the port `EventStores`."""

import contextlib
from collections.abc import Callable, Mapping

from rioni.domain.errors import Unavailable
from rioni.domain.ports import EventStore, Offload
from rioni.domain.storage_entry import StorageEntry
from rioni.storage.places import Places


Opener = Callable[[StorageEntry], EventStore]


class OpenedEventStores:
    """The stores of one process; a forked process must make its own."""

    def __init__(
        self, find: Callable[[str], StorageEntry | None], openers: Mapping[str, Opener], offload: Offload
    ) -> None:
        """Open nothing yet.

        Args:
            find: the storage with an id.
            openers: for each type of storage that this installation can use what opens its store.
            offload: where opening blocks.
        """
        self._find, self._openers, self._offload = find, openers, offload
        self._lock = Places()
        self._stores: dict[tuple[str, str], EventStore] = {}

    def of(self, storage_id: str) -> EventStore:
        """The store of a storage; see the port."""
        storage = self._find(storage_id)
        if storage is None:
            raise Unavailable(f"There is no storage with id {storage_id}.")
        # By its type as well: an id may come back as something else.
        key = storage.id, storage.storage_type
        return self._stores.get(key) or self._open(key, storage)

    def _open(self, key: tuple[str, str], storage: StorageEntry) -> EventStore:
        opener = self._openers.get(storage.storage_type)
        if opener is None:
            raise Unavailable(
                f"The storage {storage.id} is of type {storage.storage_type}, which this installation can't use. "
                f"It can use: {', '.join(self._openers)}."
            )
        with self._lock:
            if key not in self._stores:
                self._stores[key] = self._offload(opener, storage)
            return self._stores[key]

    def close(self) -> None:
        """Close all stores; see the port."""
        with self._lock, contextlib.ExitStack() as stack:
            for store in self._stores.values():
                stack.callback(store.close)
            self._stores = {}
