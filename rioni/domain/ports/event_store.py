"""The port to a store of published events: topics, appends, reads, retention."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from rioni.domain.publishing.headers import Headers, headers_bytes


class Bounds(NamedTuple):
    """What a partition of a topic holds."""

    oldest: int
    """The first position that can be read, or would be."""
    newest: int
    """The last position that was written; `oldest - 1` where nothing is left."""


class IdempotencyClaim(NamedTuple):
    """The name that a batch is stored under once."""

    id: str
    """Unique within the store: whoever appends prefixes it."""
    digest: str
    """Tells the batch from others that come under the same name."""


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive events of one partition, as they were stored together."""

    first: int
    """The position of the first event."""
    recorded_at_ms: int
    data: bytes
    """The events' JSON, joined by commas: a part of it can be sent as the inside of a JSON array as it is."""
    ends: Sequence[int]
    """For each event the index in `data` behind its last byte; that of a tombstone is empty."""
    headers: Sequence[Headers] | None = None
    """For each event what is stored beside it; None where none has anything, and so there is no tombstone either."""

    @property
    def next(self) -> int:
        """The position behind the last event."""
        return self.first + len(self.ends)

    @property
    def size(self) -> int:
        """About what it takes in memory, in bytes."""
        return len(self.data) + 4 * len(self.ends) + headers_bytes(self.headers)

    def cut(self, start: int, stop: int) -> bytes:
        """The events at positions `start` to `stop - 1`, joined by commas.

        PERF: one slice, however many events: this is what makes consuming fast.
        """
        begin, end = start - self.first, stop - self.first
        return self.data[self.ends[begin - 1] + 1 if begin else 0 : self.ends[end - 1]]


class Appended(dict[int, int]):
    """For each partition the position of its first event that was not left out; partitions without one are absent."""

    left_out: int = 0
    """How many events were left out, because they or their batch had been stored before."""


class EventStore(Protocol):
    """The published events, in topics of numbered partitions. Calls block on the disk, but never other greenlets."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; creating it again with the same number of partitions changes nothing.

        Raises:
            Unavailable: the store can't write.
        """

    def extend_topic(self, topic: str, partitions: int) -> None:
        """Add empty partitions up to a number, to a closed topic too; where there are as many this changes nothing.

        Raises:
            NotFound: topic unknown.
            Unavailable: the store can't write.
        """

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        """Refuse everything that any process appends from now on, for good; closing it again changes nothing.

        Returns:
            What the topic holds, for good: whatever was under way is stored, or will be refused.

        Raises:
            NotFound: topic unknown.
            Unavailable: the store can't write.
        """

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its events; deleting an unknown one changes nothing."""

    def append(
        self,
        topic: str,
        batches: Mapping[int, Sequence[bytes]],
        *,
        headers: Mapping[int, Sequence[Headers]] | None = None,
        ids: Mapping[int, Sequence[str]] | None = None,
        claim: IdempotencyClaim | None = None,
    ) -> Appended:
        """Append events durably: when this returns they survive the death of the process and of the machine.

        Args:
            topic: an existing topic.
            batches: for each partition the events' JSON. An empty event is a tombstone, which deletes what has its key
                and is never delivered: it needs headers with a key.
            headers: what is stored beside the events, for none, some or all of the partitions.
            ids: of the events, for none, some or all of the partitions. An event whose id was stored before, in
                whatever topic of this store, is left out, as is one whose id comes earlier in this call, by the order
                of `batches`.
            claim: the name that the batch is stored under once.

        Ids and claims hold within the window that `forget_ids` leaves: atomically with the events, for all processes,
        and across restarts.

        Returns:
            Where the events are; empty if the batch was stored before.

        Raises:
            IdempotencyKeyReused: another batch was stored under this name.
            NotFound: topic or partition unknown.
            TopicClosed: the topic is closed; it says what was written all the same, mostly nothing.
            PartiallyStored: some partitions were not written, or nobody knows; it says which ones, and why.
            Unavailable: the disk is full or fails; nothing was written.
        """

    def claimed(self, claim_id: str) -> str | None:
        """The digest of the batch that is stored under a name, None where there is none. Cheap."""

    def known_ids(self, ids: Collection[str]) -> Collection[str]:
        """Those of some ids that an event is stored under."""

    def forget_ids(self, before_ms: int) -> None:
        """Forget under which ids and names events and batches were stored before this time, or raise Unavailable."""

    def read(
        self, topic: str, partition: int, first: int, bytes_max: int, beside: Callable[[], Mapping[int, int]] = dict
    ) -> Sequence[Chunk]:
        """The chunks from position `first` on, which lies in the first of them; empty at the end.

        A store that has to load them may load at the same time what is `beside` them: by partition the positions that
        the caller reads next.

        Where retention has removed `first`, reading goes on at the oldest event: compare `chunks[0].first`.
        At least one chunk if there is one, further ones while they fit into `bytes_max`. What other processes have
        appended may be missing, as for `newest`, up to what `bounds` has told.
        """

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """The bounds of all partitions, by number.

        Raises:
            NotFound: topic unknown.
        """

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:
        """The last position of every partition, by number; cheap, unless less than `partitions` have been known.

        Of what others have appended something may be missing, until the signal `topic:<topic>` tells of it.

        Raises:
            NotFound: topic unknown.
        """

    def first_since(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first chunk stored at this time or later; behind the newest where there is none."""

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        """When the event at position `first` was stored, or the oldest one behind it that is left; None at the end.

        Reads no events: cheaper than `read`.
        """

    def expire(self, topic: str, before_ms: int) -> int:
        """Remove the chunks stored before this time; return the number of events. Positions never come back."""

    def compact(self, topic: str, before_ms: int, keyed_since_ms: int = 0) -> int:
        """Remove every event behind which, before this time, another one with its key was stored; and old deletions.

        Their positions stay, as those of events without content, which nobody gets. A store that compacts by itself
        learns here that it has to, and how far behind. Returns the number of events, as far as it is known.

        Events that were stored before `keyed_since_ms` may have no key: they stay.
        """

    def close(self) -> None:
        """Close all files."""
