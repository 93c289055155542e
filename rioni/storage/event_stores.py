"""Maps each storage to its event store: the port `EventStores`."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Mapping

from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import EventStore
from rioni.domain.ports.thread_pool import StorePools
from rioni.domain.system.storages import StorageEntry
from rioni.storage.threads.greenlet_semaphore import ThreadSafeSemaphore


Opener = Callable[[StorageEntry], EventStore]

OPENING_WAIT_S = 15.0
"""How long a request waits for another one to open the store."""


class EventStoreRegistry:
    """The stores of one process; a forked process must make its own."""

    def __init__(
        self,
        find: Callable[[str], StorageEntry | None],
        openers: Mapping[str, Opener],
        pools: Callable[[str], StorePools],
    ) -> None:
        """Open nothing yet.

        Args:
            find: returns the storage with an id.
            openers: opens the store of a storage, by each storage type that this installation supports.
            pools: returns the pools of a storage, where opening it blocks. One that hangs does not block the others.
        """
        self._find, self._openers, self._pools = find, openers, pools
        self._locks: defaultdict[tuple[str, str], ThreadSafeSemaphore] = defaultdict(ThreadSafeSemaphore)
        self._stores: dict[tuple[str, str], EventStore] = {}

    def of(self, storage_id: str) -> EventStore:
        """Return the store of a storage; see the port."""
        storage = self._find(storage_id)
        if storage is None:
            raise Unavailable(f"There is no storage with id {storage_id}.")
        # The type is part of the key: an id may be reused with another type.
        key = storage.id, storage.storage_type
        return self._stores.get(key) or self._open(key, storage)

    def _open(self, key: tuple[str, str], storage: StorageEntry) -> EventStore:
        opener = self._openers.get(storage.storage_type)
        if opener is None:
            raise Unavailable(
                f"The storage {storage.id} is of type {storage.storage_type}, which this installation can't use. "
                f"It can use: {', '.join(self._openers)}."
            )
        with self._locks[key].taken(
            OPENING_WAIT_S, f"The storage {storage.id} is being opened, which takes too long; try again later."
        ):
            if key not in self._stores:
                self._stores[key] = self._pools(storage.id).topics(opener, storage)
            return self._stores[key]

    def opened(self) -> Mapping[str, EventStore]:
        """Return the open stores by storage id; see the port."""
        return {storage_id: store for (storage_id, _), store in self._stores.items()}

    def close(self) -> None:
        """Close all stores; see the port."""
        with contextlib.ExitStack() as stack:
            for store in self._stores.values():
                stack.callback(store.close)
            self._stores = {}
