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
        self.count = 0
        """Of all addresses."""
        self._of_addresses: dict[str, dict[DeadlineSocket, None]] = {}

    def __iter__(self) -> Iterator[DeadlineSocket]:
        """All that are open now."""
        return iter([sock for each in self._of_addresses.values() for sock in each])

    def add(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection; where there are too many, end one that waits, of an address that has as many or more.

        Addresses with the most are looked at first. Where all others are served, the new one ends if it is of these.
        """
        own = self._of_addresses.setdefault(address, {})
        own[sock] = None
        self.count += 1
        if self.count <= self._kept_max:
            return
        # PERF: addresses and connections of 10,000 are looked through in 1 ms.
        others = sorted((each for each in self._of_addresses.values() if len(each) >= len(own)), key=len, reverse=True)
        waiting = (each for of_address in others for each in of_address if each.waits and each is not sock)
        ended = next(waiting, sock if len(own) == len(others[0]) else None)
        if ended is not None:
            ended.stop_reading()

    def discard(self, sock: DeadlineSocket, address: str) -> None:
        """Count a connection no longer."""
        of_address = self._of_addresses[address]
        del of_address[sock]
        self.count -= 1
        if not of_address:
            del self._of_addresses[address]
