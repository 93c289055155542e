"""Poison event search: finds an event that consumers never commit (reference streams#dead-letter-handling).

Whenever a stream ends, or hands a partition over, with events that were sent and not committed, the partition has
failed; any commit that advances it makes up for all failures. After too many of them the partition is searched: its
events are sent one at a time, the next one only when the one before is committed, as far as a batch reaches. An event
that has failed so often all alone is a dead letter.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rioni.domain.ports.coordinator import EventTypePartition
from rioni.domain.subscriptions.cursor import TimelinePosition
from rioni.domain.subscriptions.dead_letter_policy import Policy


class Failures(NamedTuple):
    """What is known of a partition when a stream gets it."""

    times: int = 0
    """Since the last commit that advanced it."""
    failed: TimelinePosition | None = None
    """The last event of those that were sent last."""
    search_until: TimelinePosition | None = None
    """How far events are sent one at a time; None for not at all."""


NONE = Failures()


class PoisonSearch:
    """What one stream knows of the failures of one partition, and what follows from them."""

    def __init__(self, failures: Failures, committed: TimelinePosition, policy: Policy, batch_limit: int) -> None:
        """Begin to read a partition.

        Args:
            failures: as they are when the stream gets the partition.
            committed: where it begins.
            policy: of the subscription.
            batch_limit: so many events may be searched.
        """
        self.until = failures.search_until
        """Events up to here are sent one at a time."""
        self.suspect: TimelinePosition | None = None
        """An event that is a dead letter, should it be the next one."""
        self.restarts = False
        """Whether the next attempt begins the search, and all failures are to be forgotten."""
        self._noted: TimelinePosition | None = None
        if self.until is not None and committed >= self.until:
            self.until = None
        if failures.times >= policy.send_count:
            if self.until is None:
                self.until = TimelinePosition(committed.order, committed.position + batch_limit)
                self.restarts = True
            else:
                self.suspect = failures.failed

    def acquit(self) -> None:
        """The suspect is not there any more: whatever comes in its place has not failed yet."""
        self.suspect = None
        self.restarts = True

    def notes(self, committed: TimelinePosition) -> bool:
        """Whether it is still to be noted that something is being sent."""
        return self.restarts or self._noted is None or self._noted <= committed

    def noted(self, place: TimelinePosition) -> TimelinePosition | None:
        """Note that events up to a place are being sent; return how far to search from now on, None for as before."""
        self._noted = place
        restarts, self.restarts = self.restarts, False
        return self.until if restarts else None

    def commit(self, place: TimelinePosition) -> None:
        """Take note of a committed place."""
        if self.until is not None and place >= self.until:
            self.until = None
        if self.suspect is not None and place >= self.suspect:
            self.suspect = None


def tracking(failures: Mapping[EventTypePartition, Failures]) -> str:
    """What streams say to humans about their partitions (reference streams#json-batches)."""
    each = (
        f"{{{key.event_type}:{key.partition} failedCommitsCount={found.times} "
        f"lastDeadLetterOffset={found.search_until.offset if found.search_until else 'null'}}}"
        for key, found in failures.items()
    )
    return f"Auto DLQ failed commits tracking: {', '.join(each)}"
