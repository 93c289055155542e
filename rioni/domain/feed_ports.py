"""What the broker's own events need from the outside: further ports, of the kind of those in `rioni.domain.ports`."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from rioni.domain.ports import LogEntry


class RecordedChange(NamedTuple):
    """An entry of the log, with the state of its stream that it found and the one that it left."""

    entry: LogEntry
    before: str | None
    """JSON; None where nothing existed."""
    after: str | None
    """JSON; None where nothing exists any more."""


class Trail(Protocol):
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


class Leadership(Protocol):
    """Chooses one process of the broker for what one alone need do."""

    def held(self) -> bool:
        """Whether this process is the one; it stays so until it ends, then another one may be. Cheap, never blocks."""

    def close(self) -> None:
        """Let another process be the one."""


class SpoolFile(Protocol):
    """Lines that were kept together."""

    @property
    def id(self) -> UUID:
        """Never given to another one."""

    def lines(self) -> Sequence[bytes]:
        """All of them, in order; damaged ones are possible after a power failure. Blocks on the disk."""

    def remove(self) -> None:
        """Forget the lines for ever."""


class Spool(Protocol):
    """Keeps lines until somebody has made something of them, also if the process that wrote them dies."""

    def append(self, line: bytes) -> bool:
        """Keep a line, or say that there is no room for it. Cheap, never waits for the disk, never raises."""

    def finished(self, *, current: bool) -> Sequence[SpoolFile]:
        """The files that get no more lines, those of dead processes included; this process alone has them.

        Args:
            current: whether the file that is being written ends now.
        """

    def close(self) -> None:
        """Let others take over what is left."""


class Spools(NamedTuple):
    """What is measured goes to one of these."""

    requests: Spool
    streams: Spool
    """The batches of streams, which are reported together."""
