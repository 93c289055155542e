"""Quotas of clients: changes, events and bytes that each may send in a time, and streams that it may have open."""

import math
import mmap
import os
import struct
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import blake2b
from typing import NamedTuple
from uuid import uuid4

import falcon

from rioni.config.settings import Config
from rioni.domain.errors import QuotaExceeded, TooManyStreams
from rioni.domain.ports.host import Charge, ConnectionQuota
from rioni.domain.timelines.position import EventTypePartition
from rioni.http.caller import client_key


# --- The quotas that clients have used, in memory that the worker processes of a node share ---
#
# A bucket is one number: the time at which it is full again. That is the generic cell rate algorithm, in which a bucket
# refills without a timer. Workers take no lock: if two charge one client within the same microseconds, one charge may
# be lost, which is less than a client saves by waiting.

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


# --- Charges clients for changes, events and bytes, and reports what is left (reference common#quotas) ---
#
# The header fields are those of draft-ietf-httpapi-ratelimit-headers-10.

CHANGES, CHANGE_BYTES, EVENTS, EVENT_BYTES = "changes", "change-bytes", "events", "event-bytes"
NAMES = (CHANGES, CHANGE_BYTES, EVENTS, EVENT_BYTES)
"""Every quota; its number is its bucket's. Also the values of the metrics' label `quota`."""
_BYTES, _EVENTS = ';qu="content-bytes"', ';qu="events"'
_ROUNDING = 1e-6

Refused = Callable[[str], None]


class QuotaPolicy(NamedTuple):
    """One quota, as it is set."""

    name: str
    amount: int
    """The units in a full bucket, which are also the units that come back within the window."""
    window_s: int
    setting: str
    unit: str
    parameter: str = ""
    """The unit in the header field; none for the default, requests."""

    @property
    def unit_s(self) -> float:
        """Seconds in which one unit comes back."""
        return self.window_s / self.amount

    @property
    def text(self) -> str:
        """The text for a client that has exceeded it."""
        return (
            f"A client may send {self.amount} {self.unit} in {self.window_s} s (setting {self.setting}), and this one "
            "has sent too many"
        )

    @property
    def field(self) -> str:
        """The item of `RateLimit-Policy`."""
        return f'"{self.name}";q={self.amount};w={self.window_s}{self.parameter}'


class Quotas:
    """The quotas of all clients of a node, as one worker charges them."""

    def __init__(
        self,
        config: Config,
        buckets: SharedBuckets,
        refused: Refused = lambda _name: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the quotas.

        Args:
            config: has the amounts; 0 is no quota.
            buckets: the buckets of the node, one for each of `NAMES`.
            refused: called with the name of each quota that refuses a request.
            monotonic_s: the system's monotonic clock.
        """
        self._changes = (
            QuotaPolicy(CHANGES, config.quota_changes_per_minute, 60, "quota_changes_per_minute", "changes"),
            QuotaPolicy(
                CHANGE_BYTES,
                config.quota_change_bytes_per_minute,
                60,
                "quota_change_bytes_per_minute",
                "bytes of changes",
                _BYTES,
            ),
        )
        self._publishing = (
            QuotaPolicy(EVENTS, config.quota_events_per_second, 1, "quota_events_per_second", "events", _EVENTS),
            QuotaPolicy(
                EVENT_BYTES, config.quota_bytes_per_second, 1, "quota_bytes_per_second", "bytes of events", _BYTES
            ),
        )
        self._counts_changes = any(policy.amount for policy in self._changes)
        self._counts_events = any(policy.amount for policy in self._publishing)
        self._buckets, self._refused, self._monotonic_s = buckets, refused, monotonic_s

    def charge_change(self, req: falcon.Request) -> None:
        """Charge the client for one change, and for the bytes of the body that were read.

        Raises:
            QuotaExceeded: nothing was charged.
        """
        if self._counts_changes:
            _client, size = getattr(req.context, "held", None) or ("", 0)
            self._charge(req, client_key(req), self._changes, (1, size))

    def publishing(self, req: falcon.Request) -> Charge | None:
        """Return the function that charges the client for events and their bytes; None without such quotas."""
        if not self._counts_events:
            return None
        client = client_key(req)
        return lambda events, bytes_: self._charge(req, client, self._publishing, (events, bytes_))

    def _charge(self, req: falcon.Request, client: str, policies: Sequence[QuotaPolicy], costs: Sequence[int]) -> None:
        now_s = self._monotonic_s()
        place = self._buckets.place(client, now_s)
        states = []
        for policy, cost in zip(policies, costs, strict=True):
            if policy.amount:
                full_at_s = self._buckets.full_at_s(place, NAMES.index(policy.name))
                states.append(_State(policy, cost, max(0.0, full_at_s - now_s)))
        req.context.rate_limits = states
        if exceeded := [state for state in states if state.late_s > _ROUNDING]:
            raise self._refusal(exceeded)
        for state in states:
            state.spend()
            self._buckets.set_full_at_s(place, NAMES.index(state.policy.name), now_s + state.missing_s)

    def _refusal(self, exceeded: Sequence["_State"]) -> QuotaExceeded:
        names = [state.policy.name for state in exceeded]
        for name in names:
            self._refused(name)
        longest = max(exceeded, key=lambda state: state.late_s)
        retry_after_s = max(1, math.ceil(longest.late_s - _ROUNDING))
        return QuotaExceeded(f"{longest.policy.text}. Try again in {retry_after_s} s.", names, retry_after_s)


class _State:
    """A bucket at the time of a request."""

    __slots__ = ("_cost", "missing_s", "policy")

    def __init__(self, policy: QuotaPolicy, cost: int, missing_s: float) -> None:
        self.policy, self._cost = policy, cost
        self.missing_s = missing_s
        """The time until it is full, in seconds."""

    @property
    def late_s(self) -> float:
        """The time until the request may be made, in seconds; at most 0 if it may be made now."""
        if self._cost <= 0:
            return 0.0
        # A request that costs more than a full bucket holds needs a full one, and leaves a debt: there must be a way.
        needed = min(self._cost, self.policy.amount)
        return self.missing_s + needed * self.policy.unit_s - self.policy.window_s

    def spend(self) -> None:
        """Take the costs of the request; negative ones are given back."""
        self.missing_s = max(0.0, self.missing_s + self._cost * self.policy.unit_s)

    @property
    def field(self) -> str:
        """The item of `RateLimit`."""
        left = max(0, math.floor((self.policy.window_s - self.missing_s) / self.policy.unit_s + _ROUNDING))
        return f'"{self.policy.name}";r={left};t={max(0, math.ceil(self.missing_s - _ROUNDING))}'


def add_rate_limits(req: falcon.Request, resp: falcon.Response) -> None:
    """Add headers to a response with the rest of the quotas that its request was charged to."""
    states: Sequence[_State] | None = getattr(req.context, "rate_limits", None)
    if states:
        resp.set_header("RateLimit-Policy", ", ".join(state.policy.field for state in states))
        resp.set_header("RateLimit", ", ".join(state.field for state in states))


# --- Limits the number of open streams of a client ---
#
# Source: reference low-level-streams#connection-limits, operations#stream-limits.


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
