"""Cosignatures of witnesses: the newest of each, and the port that keeps them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


WITNESSES_MAX = 16


class Cosignature(NamedTuple):
    """A witness has seen a checkpoint that extends the one that it saw before."""

    witness: str
    """The name of its key."""
    size: int
    """Of the tree."""
    text: str
    """Of the checkpoint."""
    signature: str
    """The line of the signed note."""


class Cosignatures(Protocol):
    """Keeps the newest cosignature of each witness. Calls block on the database; all raise Unavailable."""

    def add(self, cosignature: Cosignature) -> None:
        """Keep a cosignature in place of an older one; one of a smaller tree changes nothing."""

    def all(self) -> Sequence[Cosignature]:
        """Return the newest one of each witness, by name."""
