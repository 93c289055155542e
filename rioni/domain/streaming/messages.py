"""What goes into the state machine of a stream, what comes out of it, and why a stream may end."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from rioni.domain.cursor import Place
from rioni.domain.ports import Chunk, EventTypePartition
from rioni.domain.streaming.batching import Slice


class Reason(Enum):
    """Why a stream ends (consumption contract 8.8)."""

    STREAM_TIMEOUT = "Stream timeout reached"
    STREAM_LIMIT = "Stream limit in events reached: {count}"
    KEEP_ALIVE_LIMIT = "Keep-alive limit reached"
    COMMIT_TIMEOUT = "Commit timeout reached"
    NO_PARTITION = "No partition was assigned for too long"
    RESET = "Resetting subscription cursors"
    BLOCKED = "Consumption is blocked"
    UNAUTHORIZED = "Access denied"
    EVENT_TYPE_DELETED = "Event type deleted"
    SUBSCRIPTION_DELETED = "Subscription deleted"
    SESSION_ENDED = "Session ended"
    SHUTDOWN = "Server is shutting down"
    FAILURE = "Internal error"
    CLIENT_GONE = ""

    @property
    def waits(self) -> bool:
        """Whether the session stays for a while, so that what was sent can still be committed."""
        return self in _WAITING

    @property
    def silent_at_low_level(self) -> bool:
        """Whether a low-level stream ends without saying why (4.5): its client asked for it."""
        return self in _WISHED


_WISHED = {Reason.STREAM_TIMEOUT, Reason.STREAM_LIMIT, Reason.KEEP_ALIVE_LIMIT, Reason.CLIENT_GONE}
_WAITING = _WISHED | {Reason.NO_PARTITION, Reason.RESET, Reason.BLOCKED}


# --- in ---


class Tick(NamedTuple):
    """Time has passed."""


class Arrived(NamedTuple):
    """The last events that were seen in partitions."""

    newest: Mapping[EventTypePartition, Place]


class Run(NamedTuple):
    """The answer to one `Fetch`."""

    fetch: "Fetch"
    order: int
    """Of the timeline that the chunks are from."""
    chunks: Sequence[Chunk]
    """Empty where nothing follows."""


class Fetched(NamedTuple):
    """The answers to all `Fetch`es of a step, together, so that they can be served in turn."""

    runs: Sequence[Run]


class Holding(NamedTuple):
    """A partition that the stream owns, as the coordinator sees it."""

    committed: Place
    wanted: bool
    """Another stream waits for it."""


class Coordinated(NamedTuple):
    """All partitions that the stream owns now."""

    holdings: Mapping[EventTypePartition, Holding]


class End(NamedTuple):
    """Something outside demands that the stream ends."""

    reason: Reason
    detail: str = ""
    """Said to the client in place of the reason's own text."""


Input = Tick | Arrived | Fetched | Coordinated | End


# --- out ---


class Fetch(NamedTuple):
    """Read what follows a place."""

    partition: EventTypePartition
    after: Place
    bytes_max: int


class Send(NamedTuple):
    """Send a batch; without slices it is a keep-alive."""

    partition: EventTypePartition
    place: Place
    """Of the last event of the batch, or of the last one before."""
    slices: Sequence[Slice]
    info: str
    """For humans; empty for none."""


class Release(NamedTuple):
    """Hand a partition over to the stream that waits for it."""

    partition: EventTypePartition


class Close(NamedTuple):
    """End the response and the session; nothing comes after this."""

    reason: Reason


Output = Fetch | Send | Release | Close
