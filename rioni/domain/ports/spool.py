"""The ports to spools: lines in files that wait to be published."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID


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
    """Stores lines durably until they are processed, even if the process that wrote them dies."""

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
