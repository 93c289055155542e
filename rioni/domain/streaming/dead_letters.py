"""Poison event search: finds an event that consumers never commit (reference streams#dead-letter-handling).

Whenever a stream ends, or hands a partition over, with events that were sent and not committed, the partition has
failed; any commit that advances it resets its failures. After too many of them the partition is searched: its
events are sent one at a time, the next one only when the one before is committed, up to the size of a batch. An event
that has failed so often when sent alone is a dead letter.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rioni.domain.subscriptions.dead_letter_policy import Policy
from rioni.domain.timelines.position import EventTypePartition, TimelinePosition


class Failures(NamedTuple):
    """Failures of a partition when a stream gets it."""

    times: int = 0
    """Since the last commit that advanced it."""
    failed: TimelinePosition | None = None
    """The last event of those that were sent last."""
    search_until: TimelinePosition | None = None
    """The position up to which events are sent one at a time; None if they are not."""


NONE = Failures()


class PoisonSearch:
    """Poison event search of one stream in one partition."""

    def __init__(self, failures: Failures, committed: TimelinePosition, policy: Policy, batch_limit: int) -> None:
        """Begin to read a partition.

        Args:
            failures: at the time when the stream gets the partition.
            committed: the start position.
            policy: of the subscription.
            batch_limit: maximum number of events to search.
        """
        self.until = failures.search_until
        """Events up to here are sent one at a time."""
        self.suspect: TimelinePosition | None = None
        """The suspect: an event that is a dead letter if it is the next one."""
        self.restarts = False
        """Whether the next attempt begins the search, and resets all failures."""
        self._recorded: TimelinePosition | None = None
        if self.until is not None and committed >= self.until:
            self.until = None
        if failures.times >= policy.send_count:
            if self.until is None:
                self.until = TimelinePosition(committed.order, committed.position + batch_limit)
                self.restarts = True
            else:
                self.suspect = failures.failed

    def clear(self) -> None:
        """Clear the suspect, which does not exist any more: the event in its place has not failed yet."""
        self.suspect = None
        self.restarts = True

    def must_record(self, committed: TimelinePosition) -> bool:
        """Whether the sending of events still has to be recorded."""
        return self.restarts or self._recorded is None or self._recorded <= committed

    def record(self, place: TimelinePosition) -> TimelinePosition | None:
        """Record that events up to a position are being sent; return how far to search, None for no change."""
        self._recorded = place
        restarts, self.restarts = self.restarts, False
        return self.until if restarts else None

    def commit(self, place: TimelinePosition) -> None:
        """Take note of a committed place."""
        if self.until is not None and place >= self.until:
            self.until = None
        if self.suspect is not None and place >= self.suspect:
            self.suspect = None


def tracking(failures: Mapping[EventTypePartition, Failures]) -> str:
    """Debug texts of streams about their partitions (reference streams#json-batches)."""
    each = (
        f"{{{key.event_type}:{key.partition} failedCommitsCount={found.times} "
        f"lastDeadLetterOffset={found.search_until.offset if found.search_until else 'null'}}}"
        for key, found in failures.items()
    )
    return f"Auto DLQ failed commits tracking: {', '.join(each)}"
