"""The ports to stores of published events: topics, appends, reads and retention, and the stores of all storages."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from rioni.domain.publishing.headers import NO_HEADERS, Headers, IdempotencyClaim, headers_bytes
from rioni.domain.timelines.position import Bounds


class Chunk(msgspec.Struct, frozen=True):
    """Consecutive events of one partition that were stored together."""

    first: int
    """The position of the first event."""
    recorded_at_ms: int
    data: bytes
    """The events' JSON, joined by commas: slices can be sent unchanged inside a JSON array."""
    ends: Sequence[int]
    """For each event, the index in `data` after its last byte; a tombstone has no bytes."""
    headers: Sequence[Headers] | None = None
    """The headers of each event; None if no event has any, and so none is a tombstone."""

    @property
    def next(self) -> int:
        """The position after the last event."""
        return self.first + len(self.ends)

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes."""
        return len(self.data) + 4 * len(self.ends) + headers_bytes(self.headers)

    def cut(self, start: int, stop: int) -> bytes:
        """The events at positions `start` to `stop - 1`, joined by commas.

        PERF: one slice, however many events: this makes consuming fast.
        """
        begin, end = start - self.first, stop - self.first
        return self.data[self.ends[begin - 1] + 1 if begin else 0 : self.ends[end - 1]]

    def headers_of(self, position: int) -> Headers:
        """The headers of the event at a position."""
        return NO_HEADERS if self.headers is None else self.headers[position - self.first]


class Appended(dict[int, int]):
    """Positions of appended events: for each partition that of its first event that was not a duplicate, if any."""

    duplicates: int = 0
    """Number of events that were left out because they or their batch had been stored before."""


class EventStore(Protocol):
    """Stores published events in topics of numbered partitions. Calls block on the disk, but never other greenlets."""

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; creating it again with the same number of partitions changes nothing.

        Raises:
            NotFound: another process deleted it meanwhile.
            Unavailable: the store can't write.
        """

    def extend_topic(self, topic: str, partitions: int) -> None:
        """Add empty partitions up to a number, to a closed topic too; no-op if there are as many already.

        Raises:
            NotFound: topic unknown.
            Unavailable: the store can't write.
        """

    def close_topic(self, topic: str) -> Sequence[Bounds]:
        """Reject all further appends of any process, permanently; closing it again changes nothing.

        Returns:
            The final bounds of the topic: appends in progress are either stored by now, or will be rejected.

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
        """Append events durably: when this returns they survive a crash of the process and of the machine.

        Args:
            topic: an existing topic.
            batches: for each partition the events' JSON. An empty event is a tombstone, which deletes the events with
                its key and is never delivered: it needs headers with a key.
            headers: the headers of the events, for none, some or all of the partitions.
            ids: the ids of the events, for none, some or all of the partitions. An event whose id was stored before, in
                any topic of this store, is left out, as is one whose id occurs earlier in this call, in the order of
                `batches`.
            claim: idempotency key and digest of the batch.

        Ids and claims hold within the window that `expire_ids` leaves: atomically with the events, for all processes,
        and across restarts.

        Returns:
            The positions of the events; empty if the batch was stored before.

        Raises:
            IdempotencyKeyReused: another batch was stored under this key.
            NotFound: topic or partition unknown.
            TopicClosed: the topic is closed; the error lists what was written before, mostly nothing.
            PartiallyStored: some partitions were not written, or the outcome is unknown; the error lists them, with the
                reason.
            Unavailable: the disk is full or fails; nothing was written.
        """

    def claimed(self, claim_id: str) -> str | None:
        """The digest of the batch that was stored under a key, None if there is none. Cheap."""

    def existing_ids(self, ids: Collection[str]) -> Collection[str]:
        """The given ids under which an event was stored."""

    def expire_ids(self, before_ms: int) -> None:
        """Delete ids and idempotency keys stored before this time, or raise Unavailable."""

    def read(
        self, topic: str, partition: int, first: int, bytes_max: int, prefetch: Callable[[], Mapping[int, int]] = dict
    ) -> Sequence[Chunk]:
        """Read chunks from position `first` on, which is in the first of them; empty at the end.

        A store that has to load them may also load the positions in `prefetch`: by partition, those that the caller
        reads next.

        If retention has removed `first`, reading resumes at the oldest event: compare `chunks[0].first`.
        Returns at least one chunk if there is one, further ones while they fit into `bytes_max`. Recent appends of
        other processes may be missing, as for `newest`, but none that `bounds` has included.
        """

    def bounds(self, topic: str) -> Sequence[Bounds]:
        """The bounds of all partitions, by number.

        Raises:
            NotFound: topic unknown.
        """

    def bounds_of(self, topics: Mapping[str, int]) -> Mapping[str, Sequence[Bounds]]:
        """The bounds of many topics, in one step; those whose bounds are unknown now are left out.

        Args:
            topics: each with the number of its partitions.
        """

    def newest(self, topic: str, partitions: int = 1) -> Sequence[int]:
        """The last position of every partition, by number; cheap, unless fewer than `partitions` are known.

        Appends of other processes may be missing until the notification of `topic:<topic>`.

        Raises:
            NotFound: topic unknown.
        """

    def offset_at_time(self, topic: str, partition: int, recorded_at_ms: int) -> int:
        """The position of the first chunk stored at this time or later; without one, that after the last event."""

    def recorded_at_ms(self, topic: str, partition: int, first: int) -> int | None:
        """Storage time of the event at position `first`, or of the next remaining one; None without any.

        Reads no events: cheaper than `read`.
        """

    def delete_before(self, topic: str, before_ms: int) -> int:
        """Delete the chunks stored before this time; return the number of events. Positions are never reused."""

    def compact(self, topic: str, before_ms: int, keyed_since_ms: int = 0) -> int:
        """Delete events that were superseded by a later one with the same key before this time, and old tombstones.

        Their positions remain, as events without content, which are never delivered. A store that compacts by itself
        gets its configuration and lag from this call. Returns the number of events, or of those that are known.

        Events that were stored before `keyed_since_ms` may have no key: they are kept.
        """

    def close(self) -> None:
        """Close all files."""


# --- The port to the event stores of all storages ---


class EventStores(Protocol):
    """The event stores of all storages, each opened on first use."""

    def of(self, storage_id: str) -> EventStore:
        """The store of a storage. Cheap, except for the first call, which may block the caller.

        Raises:
            Unavailable: there is no such storage, or this installation can't use it.
        """

    def opened(self) -> Mapping[str, EventStore]:
        """The open stores, by storage. Never blocks."""

    def close(self) -> None:
        """Close all stores."""


# --- Measurements reported by an external event store ---


def _ignored(_value: float) -> None:
    pass


class StoreMeasurements(NamedTuple):
    """Callbacks for measurements; each is cheap, never raises, and is called in threads that may update metrics."""

    append_seconds: Callable[[float], None] = _ignored
    """Seconds that a group of batches has waited for the store."""
    failed_batches: Callable[[float], None] = _ignored
    """Number of batches that were not stored, or whose outcome is unknown."""
    loaded_bytes: Callable[[float], None] = _ignored
    """Bytes read from the store that were no longer in memory."""
    events_behind: Callable[[float], None] = _ignored
    """Lag: number of written events that this process has not read yet."""
    topic_resyncs: Callable[[float], None] = _ignored
    """Number of topics followed anew from their ends, because they had changed unexpectedly."""
    recovered_batches: Callable[[float], None] = _ignored
    """Number of interrupted batches whose outcome was recovered."""


# --- The port of an event store that no other installation uses ---


@runtime_checkable
class TopicNames(Protocol):
    """An event store that no other installation uses, so it can list its topics."""

    def topics(self) -> Collection[str]:
        """The names of all topics. Blocks on the disk, but never other greenlets."""
