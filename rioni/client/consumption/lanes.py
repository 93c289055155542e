"""Items that wait to be handled: in order within a partition, one at a time, and partitions in turns."""

from collections import deque
from typing import Any, NamedTuple

from rioni.client.consumption.events import EventBatch, PartitionProgress, StreamPartition


class Assigned(NamedTuple):
    """A notice to the application that it gets the events of a partition from now on."""

    progress: PartitionProgress


class Revoked(NamedTuple):
    """A notice to the application that it gets no more events of a partition, and why."""

    progress: PartitionProgress
    reason: str


Item = Assigned | Revoked | EventBatch[Any]


class _Lane:
    __slots__ = ("busy", "items")

    def __init__(self) -> None:
        self.items: deque[Item] = deque()
        self.busy = False


class Lanes:
    """A queue for each partition, whatever stream its events come from."""

    def __init__(self) -> None:
        self._lanes: dict[StreamPartition, _Lane] = {}
        self._ready: deque[StreamPartition] = deque()
        """Partitions with something to take; each is in it once at most."""

    @property
    def ready(self) -> int:
        """The number of things that can be taken now."""
        return len(self._ready)

    def add(self, item: Item) -> None:
        """Put something at the end of the queue of its partition."""
        partition = item.progress.partition
        lane = self._lanes.setdefault(partition, _Lane())
        if not lane.items and not lane.busy:
            self._ready.append(partition)
        lane.items.append(item)

    def take(self) -> Item | None:
        """The next item of an idle partition, if there is one; it is in hand until `release`."""
        if not self._ready:
            return None
        lane = self._lanes[self._ready.popleft()]
        lane.busy = True
        item = lane.items.popleft()
        if isinstance(item, Assigned):
            item.progress.announced = True
        return item

    def release(self, item: Item) -> None:
        """Note that nothing of the partition is in hand any more."""
        partition = item.progress.partition
        lane = self._lanes[partition]
        lane.busy = False
        if lane.items:
            self._ready.append(partition)
        else:
            del self._lanes[partition]

    def is_busy(self, partition: StreamPartition) -> bool:
        """Whether something of a partition is in hand."""
        lane = self._lanes.get(partition)
        return lane is not None and lane.busy

    def drop(self, progress: PartitionProgress, reason: str) -> None:
        """Remove all items of one stream's partition; the application is notified, if it knows of the partition."""
        partition = progress.partition
        if (lane := self._lanes.get(partition)) is not None:
            lane.items = deque(
                each for each in lane.items if each.progress is not progress or isinstance(each, Revoked)
            )
            if not lane.items and not lane.busy:
                self._ready.remove(partition)
                del self._lanes[partition]
        if progress.announced:
            progress.announced = False
            self.add(Revoked(progress, reason))
