"""The port of an event store that no other installation uses."""

from collections.abc import Collection
from typing import Protocol, runtime_checkable


@runtime_checkable
class TopicNames(Protocol):
    """An event store that no other installation uses, so it can list its topics."""

    def topics(self) -> Collection[str]:
        """The names of all topics. Blocks on the disk, but never other greenlets."""
