"""Consistency of the stores of one installation: a common id, anchors in the stores, and marks in the registry.

The registry keeps a mark of every store: how far it had got when it was last checked. Every store carries an anchor:
which installation it belongs to, and how far the internal log had got. A store that is behind its mark, and a log that
is behind an anchor, come from an older backup; see `docs/operating/backup.md`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from rioni.domain.errors import RioniError
from rioni.domain.hash_chain import LogHead


INSTALLATION = "installation"
"""The mark that holds the id of the installation."""


class Anchor(NamedTuple):
    """The anchor that a store carries."""

    installation: str
    """The installation's id, a UUID."""
    log: LogHead
    """An entry of the internal log, by its position and hash, that was recorded before."""


Marks = Mapping[str, str]
"""Marks by name, such as `topic:<topic>`; the format of a value is the business of the store that it comes from."""


@runtime_checkable
class Anchored(Protocol):
    """A store that carries an anchor."""

    def anchor(self, anchor: Anchor, *, everything: bool) -> Marks:
        """Store an anchor durably, if it has changed, and return marks for the registry; blocks on the disk.

        Args:
            anchor: the anchor of this installation.
            everything: whether to return all marks, not only those that may have changed since the last call.

        Raises:
            Unavailable: the store can't be used.
        """


@runtime_checkable
class Marked(Protocol):
    """An external store: it carries no anchor, but has an id of its own."""

    def take_ends(self) -> tuple[str, Mapping[str, Mapping[int, int]]] | None:
        """Return the ends of partitions appended to since the last call; the caller keeps those that it can't record.

        Blocks on the servers the first time.

        Returns:
            The id of the servers that keep the events, and for each topic and partition the position after the last
            event. None if nothing was appended.

        Raises:
            Unavailable: the servers do not answer; nothing was taken.
        """


class DataMismatch(RioniError):
    """The stores of an installation do not belong together.

    Args:
        findings: one sentence for each mismatch.
    """

    def __init__(self, findings: list[str]) -> None:
        self.findings = findings
        shown = findings[:SHOWN_MAX]
        more = [f"... and {len(findings) - SHOWN_MAX} more"] if len(findings) > SHOWN_MAX else []
        lines = "".join(f"\n  - {text}" for text in [*shown, *more])
        super().__init__(
            f"The stores of this broker do not belong together:{lines}\n"
            "Nothing was changed. Restore all of them from the same backup. To go on with what is there, and lose what "
            "is missing, run `rioni accept-loss`."
        )


SHOWN_MAX = 20
"""Maximum number of mismatches listed in an error."""
