"""A model of a subscription: partitions with events, who has them, what is sent, and what may be committed.

It holds what the documentation promises, without time and I/O, for tests of what consumes.
"""

from dataclasses import dataclass, field


OTHER = "other"
"""The stream of another consumer."""


def offset_of(position: int) -> str:
    """An offset as brokers write it."""
    return f"001-0001-{position:018d}" if position >= 0 else "001-0001--1"


def position_of(offset: str) -> int:
    """The position in an offset."""
    return int(offset.removeprefix("001-0001-"))


@dataclass
class PartitionModel:
    """One partition."""

    positions: list[int] = field(default_factory=list)
    """The positions of its events; there may be gaps."""
    committed: int = -1
    sent: int = -1
    """The last position that the stream which has the partition was sent."""
    owner: str | None = None
    handled: set[int] = field(default_factory=set)
    acknowledged: int = -1
    """The last position of which the consumer knows that it is committed."""

    def publish(self, gap: int) -> None:
        """Store an event, `gap` positions after the last one."""
        self.positions.append((self.positions[-1] if self.positions else -1) + gap)

    def next_events(self, limit: int) -> list[int]:
        """Send what comes next, to the stream that has the partition."""
        found = [position for position in self.positions if position > self.sent][:limit]
        if found:
            self.sent = found[-1]
        return found

    @property
    def outstanding(self) -> int:
        """How many events are sent and not committed."""
        return sum(1 for position in self.positions if self.committed < position <= self.sent)

    def assign(self, owner: str | None) -> None:
        """Give the partition to a stream, which begins after what is committed."""
        self.owner, self.sent = owner, self.committed

    def handle(self, position: int) -> None:
        """An event is handled; fails if that breaks a promise."""
        assert position > self.acknowledged, "an event was handled again whose commit was acknowledged"
        assert self.handled.issuperset(each for each in self.positions if each < position), "an event was passed over"
        self.handled.add(position)

    def commit(self, owner: str, position: int) -> bool:
        """Commit for a stream; returns whether the stream has the partition."""
        if owner != self.owner:
            return False
        assert self.handled.issuperset(each for each in self.positions if each <= position), "an event would be lost"
        self.committed = max(self.committed, position)
        self.sent = max(self.sent, position)
        return True
