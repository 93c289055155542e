"""What the broker needs from the outside: ports, implemented in `rioni.storage` and handed in by bootstrap.

Those that are about one thing have modules beside this one: `coordination_ports`, `feed_ports`, `log_ports`,
`registry_ports`. Every port has one contract suite under `tests/contracts`, which runs over each of its adapters.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

import msgspec

from rioni.domain.events import DomainEvent, Origin
from rioni.domain.headers import Headers, headers_bytes


P = ParamSpec("P")
T = TypeVar("T")


# --- time and threads ---


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by the wall clock."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""


class Offload(Protocol):
    """Runs a blocking function where it does not stop others: in a thread pool under gevent, in place elsewhere."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what the function returns, raise what it raises; blocks the caller alone."""


def direct(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """The offload where blocking stops nobody else: a direct call."""
    return function(*args, **kwargs)


def without_deadline(offload: Offload) -> Offload:
    """The same offload, which waits for as long as the function takes.

    For what may never be given up, since the next one must not begin before it ends. Those who wait for what it does
    must have deadlines of their own.
    """
    patient: Offload = getattr(offload, "without_deadline", offload)
    return patient


class StoreOffloads(NamedTuple):
    """Where an event store blocks: apart for each kind of work, so that none of them starves another."""

    append: Offload = direct
    read: Offload = direct
    topics: Offload = direct
    """Administration: creating, closing, deleting topics, asking for their bounds."""
    keep: Offload = direct
    """Retention, compaction and verification, which may take minutes."""
    follow: Offload = direct
    """What polls for as long as the process lives."""

    @classmethod
    def all(cls, offload: Offload) -> "StoreOffloads":
        """One offload for everything."""
        return cls(offload, offload, offload, offload, offload)


def in_place(_storage_id: str) -> StoreOffloads:
    """The offloads of every storage where blocking stops nobody else."""
    return StoreOffloads()


# --- the internal log ---


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A domain event as it stands in the log."""

    position: int
    """From 1, without gaps, in the order of the commits."""
    stream: UUID
    version: int
    """From 1 within the stream, without gaps."""
    event: DomainEvent
    origin: Origin

    @property
    def originator_id(self) -> UUID:
        """The stream, by the name that the event-sourcing library gives it."""
        return self.stream

    @property
    def originator_version(self) -> int:
        """The version, by the name that the event-sourcing library gives it."""
        return self.version


class LogHead(NamedTuple):
    """The end of the log: the last position, 0 where nothing was ever written, and its hash."""

    position: int
    hash: bytes


# --- published events ---


class Bounds(NamedTuple):
    """What a partition of a topic holds."""

    oldest: int
    """The first position that can be read, or would be."""
    newest: int
    """The last position that was written; `oldest - 1` where nothing is left."""


class Claim(NamedTuple):
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
        claim: Claim | None = None,
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
            KeyReused: another batch was stored under this name.
            NotFound: topic or partition unknown.
            TopicClosed: the topic is closed; it says what was written all the same, mostly nothing.
            PartlyStored: some partitions were not written, or nobody knows; it says which ones, and why.
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
        """Let go of all files."""


class EventStores(Protocol):
    """The event stores of all storages, each opened when it is first used."""

    def of(self, storage_id: str) -> EventStore:
        """The store of a storage. Cheap, but for the first time, which may block the caller.

        Raises:
            Unavailable: there is no such storage, or this installation can't use it.
        """

    def opened(self) -> Mapping[str, EventStore]:
        """The stores that are open, by storage. Never blocks."""

    def close(self) -> None:
        """Close all stores."""


# --- waking up ---

LOG_KEY = "log"
"""The signal that the internal log has grown."""


class Watch(Protocol):
    """Waits for notifications about some keys, from this process or another."""

    def wait(self, timeout_s: float) -> bool:
        """Block this greenlet until a notification has come since the last call, or the time is over; say which."""

    def close(self) -> None:
        """Stop watching."""


class Signals(Protocol):
    """Wakes up whoever waits, in any process of the broker. A notification may be lost, so waits have time-outs."""

    def notify(self, *keys: str) -> None:
        """Wake everyone who watches one of the keys. Never blocks, never raises."""

    def watch(self, keys: Iterable[str]) -> Watch:
        """Begin to watch; what is notified from now on is not missed."""

    def generation(self, key: str) -> int:
        """A number, 0 at least, that changes with each notification of a watched key, before anyone is woken."""
