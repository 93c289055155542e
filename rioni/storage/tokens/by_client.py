"""Something of its own for each client: what one of them uses up or breaks is none of the others'."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from rioni.domain.ports.thread_pool import CLIENT


CLIENTS_MAX = 1_000
"""Those that were seen last; one that comes back later begins anew."""

T = TypeVar("T")


class ByClient(Generic[T]):
    """Keeps a value for each client that requests come from; before it is authenticated, that is its address."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: OrderedDict[str, T] = OrderedDict()

    def __call__(self) -> T:
        """The value of the client that the current greenlet works for."""
        client = CLIENT.get()
        with self._lock:
            if client in self._values:
                self._values.move_to_end(client)
            else:
                self._values[client] = self._make()
                if len(self._values) > CLIENTS_MAX:
                    self._values.popitem(last=False)
            return self._values[client]
