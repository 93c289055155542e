"""The ports to spools: files of lines that wait to be published."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID


class SpoolFile(Protocol):
    """A file of lines."""

    @property
    def id(self) -> UUID:
        """Unique id, never reused."""

    def lines(self) -> Sequence[bytes]:
        """All lines, in order; damaged ones are possible after a power failure. Blocks on the disk."""

    def remove(self) -> None:
        """Delete the lines."""


class Spool(Protocol):
    """Stores lines until they are processed, even if the process that wrote them dies."""

    def append(self, line: bytes) -> bool:
        """Append a line; return False if there is no room. Cheap, never waits for the disk, never raises."""

    def finished(self, *, current: bool) -> Sequence[SpoolFile]:
        """The completed files, those of dead processes included; this process owns them exclusively.

        Args:
            current: whether to complete the file that is being written.
        """

    def close(self) -> None:
        """Release the remaining files to other processes."""


class Spools(NamedTuple):
    """Spools of measurements."""

    requests: Spool
    streams: Spool
    """Batches of streams, which are summed in reports."""
