"""Dependencies of a stream: the ports of its process, and its client."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from rioni.domain.ports.clock import Clock
from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.ports.event_stores import EventStores
from rioni.domain.ports.notifier import Notifier
from rioni.domain.streaming.messages import End, Reason
from rioni.domain.streaming.visibility import Visibility
from rioni.domain.timelines.timeline import Timelines
from rioni.http.streaming.json_frames import Frames, FrameWriter
from rioni.http.streaming.shared_reads import TailCache


class StreamMemory:
    """Events that wait in the streams of one process until their batches are full or their windows open."""

    def __init__(self, bytes_max: int = 500_000_000) -> None:
        self._bytes_max = bytes_max
        self.streams = 0

    def open(self) -> None:
        """Count a stream more."""
        self.streams += 1

    def close(self) -> None:
        """Count a stream less."""
        self.streams -= 1

    def share(self) -> int:
        """How many bytes each of the open streams may hold now; what it holds already it sends sooner."""
        return self._bytes_max // max(1, self.streams)


@dataclass(slots=True, kw_only=True)
class StreamPorts:
    """Dependencies shared by all streams of a process."""

    clock: Clock
    stores: EventStores
    timelines: Callable[[str], Timelines]
    """The timelines of an event type, as known to this process; current if the registry was refreshed before."""
    signals: Notifier
    coordinator: Coordinator
    memory: StreamMemory = field(default_factory=StreamMemory)
    tails: TailCache = field(init=False)

    def __post_init__(self) -> None:
        self.tails = TailCache(self.stores, self.signals, self.clock)


class StreamClient:
    """The client of a stream: checked at every wake-up, so calls must be cheap; also receives the stream's reports."""

    __slots__ = ()
    keys: Collection[str] = ()
    """Keys to watch besides events and assignments, so that `ended` and `visibility` are called at once."""

    def is_disconnected(self) -> bool:
        """Whether the client has disconnected."""
        return False

    def frames(self, token: Callable[[], str] | None) -> FrameWriter:
        """Return the encoder of batches in the client's format, given a factory of cursor tokens."""
        return Frames(token)

    def ended(self) -> End | None:
        """Why the broker ends the stream, if it does: lost access, deleted resources, shutdown."""
        return None

    def visibility(self) -> Visibility:
        """Which events the broker delivers now; called after `ended`."""
        return Visibility()

    def on_begin(self) -> None:
        """Called once when the response begins.

        PERF: whatever needs a deep stack below that of the request costs each stream another page of memory for good,
        and logging does.
        """

    def on_batch(self, event_type: str, events: int, size: int) -> None:
        """Called for every batch with events: event type, number of events, bytes."""

    def on_filtered(self, count: int) -> None:
        """Called with the number of skipped events."""

    def on_filter_failures(self, count: int) -> None:
        """Called with the number of events for which the filter could not be evaluated."""

    def on_expired_unread(self, count: int) -> None:
        """Called with the number of events that expired unread."""

    def on_end(self, reason: Reason) -> None:
        """Called with the reason for which the stream ends."""

    def on_close(self) -> None:
        """Called once when the stream is closed."""
