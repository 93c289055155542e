"""Events as they are published and streamed: results, cursors and batches."""

from datetime import datetime
from typing import Any

import msgspec

from rioni.wire.base import Model


class ItemResult(Model):
    """The outcome of one event of a batch that was published."""

    publishing_status: str
    """`submitted`, `failed` or `aborted`: not tried, because another one failed."""
    step: str = "none"
    """`none`, `validating`, `partitioning`, `enriching` or `publishing`."""
    detail: str = ""
    eid: str | None = None
    partition: str | None = None


class Cursor(Model):
    """The place of an event in its partition; `BEGIN` and `END` are offsets, too, if the API accepts them."""

    partition: str
    offset: str
    event_type: str | None = None
    cursor_token: str | None = None


class CursorSpecification(Model):
    """A place by offset or by time, for resets and initial cursors; without a partition it means all of them."""

    event_type: str | None = None
    partition: str | None = None
    offset: str | None = None
    timestamp: str | None = None
    """RFC 3339: before the first event that was stored then or later."""
    shift: int | None = None
    """Positions by which the place is moved forward; negative for back."""


class Batch(Model):
    """A batch of a stream: events of one partition; without events it is a keep-alive."""

    cursor: Cursor
    events: list[msgspec.Raw] = []
    """The JSON of each event, as it was published."""
    info: dict[str, Any] | None = None


class CommitResult(Model):
    """Whether a cursor advanced its partition: `committed`, else `outdated`."""

    cursor: Cursor
    result: str


class Distance(Model):
    """The number of positions between two cursors of a partition."""

    initial_cursor: CursorSpecification
    final_cursor: CursorSpecification
    distance: int


class StreamTicket(Model):
    """Lets a browser open one stream without a token."""

    ticket: str
    """The value for the parameter `ticket`; it may read what the token of the client may, so it is a secret, too."""
    path: str
    """The path of the stream, including the path of the broker."""
    expires_at: datetime
    """The time until which a stream may begin with it."""
