"""Limits the number of open streams of a client.

Source: reference low-level-streams#connection-limits, operations#stream-limits.
"""

from collections.abc import Callable, Collection
from functools import partial
from uuid import uuid4

from rioni.domain.errors import TooManyStreams
from rioni.domain.ports.quota import ConnectionQuota
from rioni.domain.timelines.position import EventTypePartition


class StreamQuota:
    """Enforces the limits on open streams of clients, over all worker processes."""

    def __init__(self, slots: ConnectionQuota, *, per_client_max: int, per_partition_max: int) -> None:
        self._slots = slots
        self._per_client_max, self._per_partition_max = per_client_max, per_partition_max

    def acquire(self, client: str, partitions: Collection[EventTypePartition] = ()) -> Callable[[], None]:
        """Acquire a slot of the client, and one of each partition of a low-level stream; all or none.

        Returns:
            A function that releases them; it may block on the disk.

        Raises:
            TooManyStreams: names the limit, and the partitions that have no slot left.
        """
        mine = f"client\n{client}"
        by_slot = {f"partition\n{client}\n{key.event_type}\n{key.partition}": key for key in partitions}
        holder = str(uuid4())
        full = self._slots.acquire(
            holder, {mine: self._per_client_max, **dict.fromkeys(by_slot, self._per_partition_max)}
        )
        if mine in full:
            raise TooManyStreams(
                f"You exceeded the maximum number of simultaneous streams; max limit is {self._per_client_max} per "
                "client. Close some of them first."
            )
        if full:
            keys = [by_slot[slot] for slot in full]
            raise TooManyStreams(
                "You exceeded the maximum number of simultaneous connections to a single partition for event type: "
                f"{keys[0].event_type}, partition(s): {','.join(key.partition for key in keys)}; "
                f"max limit is {self._per_partition_max} connections per client"
            )
        return partial(self._slots.release, holder)
