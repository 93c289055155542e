"""What clients have used of their quotas, in memory that the worker processes of a node share.

A bucket is one number: the time at which it is full again. That is the generic cell rate algorithm, in which a bucket
refills without a timer. Workers take no lock: of two that charge one client within the same microseconds one charge may
be lost, which is less than what a client saves that waits.
"""

import mmap
import os
import struct
from hashlib import blake2b


CLIENTS_MAX = 8_192
"""Clients with buckets that are not full; further ones take the place of the one that has used least among `PROBES`."""
PROBES = 8


class SharedBuckets:
    """The buckets of all clients of a node; create it before the workers are forked."""

    def __init__(self, quotas: int, clients_max: int = CLIENTS_MAX) -> None:
        """Allocate the memory.

        Args:
            quotas: number of buckets of each client.
            clients_max: bound of the table, at least `PROBES`.
        """
        self._width, self._clients_max = 1 + quotas, clients_max
        memory = memoryview(mmap.mmap(-1, 8 * self._width * clients_max))
        self._names, self._full_at_s = memory.cast("Q"), memory.cast("d")
        # Nobody but this node knows which clients would share a place.
        self._key = os.urandom(16)

    def place(self, client: str, now_s: float) -> int:
        """Return the place of a client's buckets, which are full if the client is new.

        Args:
            client: its key.
            now_s: on the system's monotonic clock, which all processes of a machine share.
        """
        digest = blake2b(client.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key).digest()
        name = struct.unpack("Q", digest)[0] or 1
        idlest, idle_at_s = -1, 0.0
        for probe in range(PROBES):
            place = (name + probe) % self._clients_max * self._width
            if self._names[place] == name:
                return place
            full_at_s = max(self._full_at_s[place + 1 : place + self._width])
            full_at_s = max(full_at_s, now_s) if self._names[place] else 0.0
            if idlest < 0 or full_at_s < idle_at_s:
                idlest, idle_at_s = place, full_at_s
        for bucket in range(idlest + 1, idlest + self._width):
            self._full_at_s[bucket] = 0.0
        self._names[idlest] = name
        return idlest

    def full_at_s(self, place: int, quota: int) -> float:
        """Return when a bucket is full again; the past if it is full."""
        return self._full_at_s[place + 1 + quota]

    def set_full_at_s(self, place: int, quota: int, full_at_s: float) -> None:
        """Set when a bucket is full again."""
        self._full_at_s[place + 1 + quota] = full_at_s
