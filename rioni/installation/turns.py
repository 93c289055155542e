"""Grants the places of a pool, to clients in turn: one that asks for many makes the others wait for one turn."""

from collections import OrderedDict, deque
from typing import NoReturn

from gevent.event import Event

from rioni.domain.errors import Overloaded


class Gate:
    """Lets a bounded number of greenlets of one hub pass, and a bounded number wait, clients in turn.

    A free place goes to the client that has the fewest now; among equals, to the one that has waited longest since its
    last turn.
    """

    def __init__(self, places: int, queue: int, what: str) -> None:
        """Create the gate.

        Args:
            places: how many may have passed at a time.
            queue: how many may wait; further ones are rejected at once.
            what: the subject of errors about overload.
        """
        self.rejected = 0
        """Number of those that were not let pass."""
        self._queue, self._what = queue, what
        self._free = places
        self._taken: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[Event]] = OrderedDict()
        self.queued = 0
        """Number of greenlets that wait for a place."""

    def enter(self, client: str, wait_s: float | None) -> None:
        """Pass, when it is the client's turn; blocks the calling greenlet.

        Args:
            client: whose turn it has to be; those without a name share a turn and the whole queue.
            wait_s: time limit in seconds; None for none.

        Raises:
            Overloaded: the queue is full, or the client's part of it, or the time is over.
        """
        if self.take_free(client):
            return
        room = self._queue - self.queued
        if room <= 0:
            self._reject(f"{self._what} is overloaded. Try again later.")
        # The limit is that of bodies in flight: a client that queues all it can leaves as much room for others.
        if client and len(self._waiting.get(client, ())) >= room:
            self._reject(f"{self._what} is busy with other requests of this client. Try again later.")
        if not self.wait(client, wait_s):
            self._reject(f"{self._what} has been busy for {wait_s:g} s. Try again later.")

    def take_free(self, client: str) -> bool:
        """Take a place if one is free; return whether it was."""
        if self._free:
            self._free -= 1
            self._taken[client] = self._taken_by(client) + 1
            return True
        return False

    def wait(self, client: str, wait_s: float | None) -> bool:
        """Wait for a place and take it; blocks the calling greenlet.

        Args:
            client: whose turn it has to be.
            wait_s: time limit in seconds; None for none.

        Returns:
            Whether a place was taken.
        """
        turn = Event()
        self._waiting.setdefault(client, deque()).append(turn)
        self.queued += 1
        try:
            taken = turn.wait(wait_s)
        except BaseException:
            if not self._give_up(client, turn):
                self.leave(client)
            raise
        # It may have been granted while the time ended.
        return bool(taken) or not self._give_up(client, turn)

    def leave(self, client: str) -> None:
        """Give back a place that a client has taken: the next one in turn takes it."""
        # Counted as if the client still had the place: of clients with one each, another one is next.
        following = min(self._waiting, key=self._taken_by) if self._waiting else None
        if left := self._taken[client] - 1:
            self._taken[client] = left
        else:
            del self._taken[client]
        if following is None:
            self._free += 1
            return
        turns = self._waiting[following]
        turn = turns.popleft()
        self.queued -= 1
        self._waiting.move_to_end(following)
        if not turns:
            del self._waiting[following]
        self._taken[following] = self._taken_by(following) + 1
        turn.set()

    def _taken_by(self, client: str) -> int:
        return self._taken.get(client, 0)

    def _give_up(self, client: str, turn: Event) -> bool:
        """Wait no more; return whether there was no turn yet."""
        if turn.is_set():
            return False
        self._waiting[client].remove(turn)
        self.queued -= 1
        if not self._waiting[client]:
            del self._waiting[client]
        return True

    def _reject(self, detail: str) -> NoReturn:
        self.rejected += 1
        raise Overloaded(detail)
