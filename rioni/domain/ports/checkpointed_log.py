"""The port to readers of the internal log with stored checkpoints."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rioni.domain.ports.event_log import LogEntry


class RecordedChange(NamedTuple):
    """An entry of the log, with the state of its stream that it found and the one that it left."""

    entry: LogEntry
    before: str | None
    """JSON; None where nothing existed."""
    after: str | None
    """JSON; None where nothing exists any more."""


class CheckpointedLogReader(Protocol):
    """The log for those who follow it step by step and remember how far they have come. Calls block on the database.

    All raise Unavailable where the database can't be reached.
    """

    def head(self) -> int:
        """The last position of the log. Cheap."""

    def changes(self, after: int, limit: int) -> Sequence[RecordedChange]:
        """The entries behind a position, in order and without gaps, about `limit` of them; no transaction is cut."""

    def state(self, kind: str, key: str, position: int) -> str | None:
        """The JSON of an aggregate after the entries up to a position; None where it did not exist then."""

    def reached(self, follower: str) -> int:
        """The last position that a follower is done with; 0 at its beginning."""

    def reach(self, follower: str, position: int) -> None:
        """Remember durably that a follower is done with everything up to a position; never backwards."""
