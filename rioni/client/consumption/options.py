"""The options by which a consumer streams and commits."""

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

import msgspec

from rioni.client.consumption.events import StreamPartition


COMMIT_TIMEOUT_S = 60
"""The commit time-out that brokers use by default, and the largest that they allow by default."""
COMMIT_PAUSE_S = 0.01
"""PERF: between two commits of a stream. A commit costs the client 0.5 ms and the broker as much."""
POLICIES = ("batch", "interval", "manual")

OnAssigned = Callable[[StreamPartition], Any]
OnRevoked = Callable[[StreamPartition, str], Any]


class ConsumerOptions(TypedDict, total=False):
    """Options of a consumer, by name; `Options` has their meanings and defaults."""

    batch_limit: int
    max_uncommitted_events: int
    batch_flush_timeout: int
    commit_timeout: int | None
    stream_timeout: int | None
    partitions: Sequence[tuple[str, str]]
    commit: str
    commit_interval_s: float
    keep_alive_s: float
    reconnect_s: float | None
    stop_timeout_s: float
    on_assigned: OnAssigned | None
    on_revoked: OnRevoked | None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a consumer; raises ValueError if one of them makes no sense."""

    batch_limit: int = 500
    """Events in a batch at most."""
    max_uncommitted_events: int = 10_000
    """The window: events that the broker sends ahead of the committed ones; they are kept in memory."""
    batch_flush_timeout: int = 1
    """Seconds after which a batch is sent that has not become full."""
    commit_timeout: int | None = None
    """Seconds that the broker waits for a commit; None for its default. Slow handlers are kept alive in any case."""
    stream_timeout: int | None = None
    """Seconds after which the broker ends a stream, and the next one is opened; None for about an hour."""
    partitions: Sequence[tuple[str, str]] = ()
    """Event types and partitions to read, as long as they are free; by default the broker divides all of them."""
    commit: str = "batch"
    """When to commit: `batch`, as soon as all events of a batch are handled; `interval`, every `commit_interval_s`;
    `manual`, events that the application marks by `commit` of an event or a batch."""
    commit_interval_s: float = 5
    """Seconds between commits; handled events are also committed as soon as they fill a quarter of the window."""
    keep_alive_s: float = 600
    """Seconds for which a partition of which no event is finished is kept from being given to others."""
    reconnect_s: float | None = None
    """Seconds to try to get a stream until the error is raised; None for no limit."""
    stop_timeout_s: float = 30
    """Seconds that the end may take: finishing events in hand, and the last commits."""
    on_assigned: OnAssigned | None = None
    """Called with a partition before its first event."""
    on_revoked: OnRevoked | None = None
    """Called with a partition, and a reason for people, after the last event of it that is handled here."""

    def __post_init__(self) -> None:
        if self.commit not in POLICIES:
            raise ValueError(f"{self.commit!r} is no commit policy; there are {', '.join(POLICIES)}")
        for name in ("batch_limit", "max_uncommitted_events", "batch_flush_timeout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, and is {getattr(self, name)}")
        for name in ("commit_interval_s", "stop_timeout_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be more than 0, and is {getattr(self, name)}")

    @property
    def commits_itself(self) -> bool:
        """Whether events count as handled without a word of the application."""
        return self.commit != "manual"

    @property
    def pause_s(self) -> float:
        """The time between two commits of a stream, unless the window fills."""
        return self.commit_interval_s if self.commit == "interval" else COMMIT_PAUSE_S

    @property
    def commit_timeout_s(self) -> int:
        """Seconds that the broker waits for a commit; a guess if it was not asked for a time."""
        return self.commit_timeout or COMMIT_TIMEOUT_S

    @property
    def heartbeat_s(self) -> float:
        """Seconds without a commit after which a partition with uncommitted events is kept alive."""
        return self.commit_timeout_s / 3
