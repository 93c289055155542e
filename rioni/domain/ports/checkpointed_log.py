"""The port to readers of the internal log with stored checkpoints."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rioni.domain.ports.event_log import LogEntry


class RecordedChange(NamedTuple):
    """An entry of the log, with the state of its stream before and after it."""

    entry: LogEntry
    before: str | None
    """JSON; None if the aggregate did not exist."""
    after: str | None
    """JSON; None if the aggregate was deleted."""


class CheckpointedLogReader(Protocol):
    """Reads the log in steps, with a durable checkpoint for each follower. Calls block on the database.

    All raise Unavailable if the database can't be reached.
    """

    def head(self) -> int:
        """The last position of the log. Cheap."""

    def changes(self, after: int, limit: int) -> Sequence[RecordedChange]:
        """The entries behind a position, in order and without gaps, about `limit` of them; no transaction is cut."""

    def state(self, kind: str, key: str, position: int) -> str | None:
        """The JSON of an aggregate after the entries up to a position; None if it did not exist then."""

    def checkpoint(self, follower: str) -> int:
        """The checkpoint of a follower: the last position it has processed; 0 at first."""

    def save_checkpoint(self, follower: str, position: int) -> None:
        """Save a follower's checkpoint durably; it never moves backwards."""
