"""Anchors: how far partitions had got, in the log; which log and installation stores belong to, in the stores."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from rioni.domain.errors import RioniError
from rioni.domain.events import DomainEvent
from rioni.domain.hash_chain import LogHead


# Anchors of published events in the internal log: how far each partition had got, and the hash of its last chunk.
#
# Every partition of an embedded storage carries a hash chain over its chunks of events. Its head is recorded in the log
# from time to time: since then events that were changed, cut off or lost are found by comparing the store with the log,
# and the log itself by its checkpoints. Of a partition in Kafka, which keeps no chain, the range is recorded; what its
# records were, `rioni.domain.timelines.topics` says once the topic is closed.


class ChainHead(msgspec.Struct, frozen=True):
    """The range of one partition at one moment, and the hash of its chain."""

    topic: str
    partition: int
    first: int
    """The position of the first event, or of the first that the chain covers; it moves when events expire."""
    next: int
    """The position after the last event."""
    hash: str
    """The hash of the last chunk, in hexadecimal; empty before the first, and in a store without chains."""


class EventChains(msgspec.Struct, frozen=True, kw_only=True):
    """The state: the log holds the heads themselves, in its events."""

    storage: str
    anchored: int
    """How many heads the last event named."""


class EventChainsAnchored(DomainEvent, frozen=True, kw_only=True):
    """The heads of partitions that had changed since they were recorded last."""

    TOPIC = "event-chains.anchored"
    KEY = "storage"

    storage: str
    heads: tuple[ChainHead, ...]


def evolve(_state: EventChains | None, event: DomainEvent) -> EventChains:
    """The state after an event; total."""
    assert isinstance(event, EventChainsAnchored)
    return EventChains(storage=event.storage, anchored=len(event.heads))


@runtime_checkable
class Chained(Protocol):
    """An event store whose partitions carry hash chains."""

    def unanchored_heads(self, limit: int) -> Sequence[ChainHead]:
        """Return heads that have changed since they were noted as anchored; blocks on the disk.

        Raises:
            Unavailable: the store can't be used.
        """

    def note_anchored(self, heads: Sequence[ChainHead]) -> None:
        """Note that the log holds these heads; blocks on the disk.

        Raises:
            Unavailable: the store can't write.
        """


@runtime_checkable
class Ranged(Protocol):
    """An event store whose partitions have ranges, but no hash chains."""

    def ranges(self, topics: Collection[str]) -> Sequence[ChainHead]:
        """Return the ranges of all partitions of topics, without those that have no leader now; blocks on the store.

        Topics that do not exist are left out.

        Raises:
            Unavailable: the store does not answer in time.
        """


class AnchoredPartition(NamedTuple):
    """A partition, as the key of the log's records about it."""

    storage: str
    topic: str
    partition: int


# Consistency of the stores of one installation: a common id, anchors in the stores, and marks in the registry.
#
# The registry keeps a mark of every store: how far it had got when it was last checked. Every store carries an anchor:
# which installation it belongs to, and how far the internal log had got. A store that is behind its mark, and a log
# that is behind an anchor, come from an older backup; see `docs/operating/backup.md`.

INSTALLATION = "installation"
"""The mark that holds the id of the installation."""


class Anchor(NamedTuple):
    """The anchor that a store carries."""

    installation: str
    """The installation's id, a UUID."""
    log: LogHead
    """An entry of the internal log, by its position and hash, that was recorded before."""


Marks = Mapping[str, str]
"""Marks by name, such as `topic:<topic>`; the format of a value is the business of the store that it comes from."""


@runtime_checkable
class Anchored(Protocol):
    """A store that carries an anchor."""

    def anchor(self, anchor: Anchor, *, everything: bool) -> Marks:
        """Store an anchor durably, if it has changed, and return marks for the registry; blocks on the disk.

        Args:
            anchor: the anchor of this installation.
            everything: whether to return all marks, not only those that may have changed since the last call.

        Raises:
            Unavailable: the store can't be used.
        """


@runtime_checkable
class Marked(Protocol):
    """An external store: it carries no anchor, but has its own id."""

    def take_ends(self) -> tuple[str, Mapping[str, Mapping[int, int]]] | None:
        """Return the ends of partitions appended to since the last call; the caller keeps those that it can't record.

        Blocks on the servers the first time.

        Returns:
            The id of the servers that keep the events, and for each topic and partition the position after the last
            event. None if nothing was appended.

        Raises:
            Unavailable: the servers do not answer; nothing was taken.
        """


class DataMismatch(RioniError):
    """The stores of an installation do not belong together.

    Args:
        findings: one sentence for each mismatch.
    """

    def __init__(self, findings: list[str]) -> None:
        self.findings = findings
        shown = findings[:SHOWN_MAX]
        more = [f"... and {len(findings) - SHOWN_MAX} more"] if len(findings) > SHOWN_MAX else []
        lines = "".join(f"\n  - {text}" for text in [*shown, *more])
        super().__init__(
            f"The stores of this broker do not belong together:{lines}\n"
            "Nothing was changed. Restore all of them from the same backup. To go on with what is there, and lose what "
            "is missing, run `rioni accept-loss`."
        )


SHOWN_MAX = 20
"""Maximum number of mismatches listed in an error."""
