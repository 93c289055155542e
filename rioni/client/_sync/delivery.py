"""The events that a producer has taken over, in batches, and what happened to them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from rioni.client._sync import concurrency
from rioni.client.errors import ClientError, TimedOut


GRACE_S = 10.0
"""Seconds by which the result of an event may come after its deadline: the last request may still be under way."""


class Piece:
    """Events of a batch that are sent together, and again under the same idempotency key."""

    __slots__ = ("indexes", "key", "missing", "repetitions")

    def __init__(self, indexes: Sequence[int]) -> None:
        self.indexes = self.missing = indexes
        """The indexes of the piece's events in the batch; those of events that are not known to be stored."""
        self.key = str(uuid4())
        self.repetitions = 0


class ProducerBatch:
    """Events that are sent together, in the order in which the producer got them."""

    __slots__ = (
        "deadline_s",
        "done",
        "due_s",
        "errors",
        "events",
        "full",
        "headers",
        "pieces",
        "seen",
        "settled",
        "size",
    )

    def __init__(self, *, due_s: float, deadline_s: float, headers: Mapping[str, str]) -> None:
        self.events: list[bytes] = []
        self.size = 0
        """Bytes."""
        self.due_s, self.deadline_s = due_s, deadline_s
        """The times, on the monotonic clock, at which it is sent even if it is not full, and at which sending ends."""
        self.headers = headers
        self.full = False
        self.pieces: Sequence[Piece] | None = None
        """The pieces to send; None before the first one is sent."""
        self.errors: dict[int, ClientError] = {}
        """Why events failed, by their index; all others of a batch that is settled are stored."""
        self.seen: set[int] = set()
        """The failed events that the application has examined."""
        self.settled = False
        self.done = concurrency.Event()
        """The event that is set a moment after `settled`, when `on_result` was called for all events."""

    def fail(self, indexes: Iterable[int], error: ClientError) -> None:
        """Note why events failed, unless that is known."""
        for index in indexes:
            self.errors.setdefault(index, error)

    def fail_rest(self, error: ClientError) -> None:
        """Note why all events failed whose result is not known."""
        pieces = self.pieces
        for piece in [Piece(range(len(self.events)))] if pieces is None else pieces:
            self.fail(piece.missing, error)


class Delivery:
    """The outcome of one event that was handed to a producer."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch, self._index = batch, index

    @property
    def event(self) -> bytes:
        """The event as JSON, as it is sent."""
        return self._batch.events[self._index]

    @property
    def done(self) -> bool:
        """Whether the event is stored or has failed."""
        return self._batch.settled

    @property
    def error(self) -> ClientError | None:
        """Why the event failed; None if it is stored, or if that is not known yet."""
        error = self._batch.errors.get(self._index) if self._batch.settled else None
        if error is not None:
            self._batch.seen.add(self._index)
        return error

    @property
    def seen(self) -> bool:
        """Whether the application has examined the error of this event."""
        return self._index in self._batch.seen

    def result(self, timeout_s: float | None = None) -> None:
        """Wait until the event is stored.

        Args:
            timeout_s: how long to wait; by default as long as the producer tries to deliver the event.

        Raises:
            EventFailed: the broker refused the event, or failed to store it.
            TimedOut: there is no result in time; if `done` is set, the event was not stored in the producer's time.
            ClientError: any other reason why the event could not be delivered.
        """
        if timeout_s is None:
            timeout_s = max(0.0, self._batch.deadline_s - time.monotonic()) + GRACE_S
        if not concurrency.wait(self._batch.done, timeout_s):
            raise TimedOut(f"The event has no result after {timeout_s:g} s")
        if (error := self.error) is not None:
            raise error
