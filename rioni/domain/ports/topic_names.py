"""The port of an event store that nobody else uses."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable


@runtime_checkable
class TopicNames(Protocol):
    """An event store that nobody else uses, so that it knows which topics are there."""

    def topics(self) -> Collection[str]:
        """The names of all topics. Blocks on the disk, but never other greenlets."""
