"""Charges clients for changes, events and bytes, and says what is left (reference common#quotas).

The header fields are those of draft-ietf-httpapi-ratelimit-headers-10.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import falcon

from rioni.config.settings import Config
from rioni.domain.errors import QuotaExceeded
from rioni.domain.ports.quota import Charge
from rioni.http.caller import client_key
from rioni.http.quotas.shared_buckets import SharedBuckets


CHANGES, CHANGE_BYTES, EVENTS, EVENT_BYTES = "changes", "change-bytes", "events", "event-bytes"
NAMES = (CHANGES, CHANGE_BYTES, EVENTS, EVENT_BYTES)
"""Every quota; its number is its bucket's. Also the values of the metrics' label `quota`."""
_BYTES, _EVENTS = ';qu="content-bytes"', ';qu="events"'
_ROUNDING = 1e-6

Refused = Callable[[str], None]


class Policy(NamedTuple):
    """One quota, as it is set."""

    name: str
    amount: int
    """What a full bucket holds, and what comes back within the window."""
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
        """What it says to a client that has exceeded it."""
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
        """Keep what is charged.

        Args:
            config: has the amounts; 0 is no quota.
            buckets: of the node, one for each of `NAMES`.
            refused: called with the name of each quota that refuses a request.
            monotonic_s: the system's monotonic clock.
        """
        self._changes = (
            Policy(CHANGES, config.quota_changes_per_minute, 60, "quota_changes_per_minute", "changes"),
            Policy(
                CHANGE_BYTES,
                config.quota_change_bytes_per_minute,
                60,
                "quota_change_bytes_per_minute",
                "bytes of changes",
                _BYTES,
            ),
        )
        self._publishing = (
            Policy(EVENTS, config.quota_events_per_second, 1, "quota_events_per_second", "events", _EVENTS),
            Policy(EVENT_BYTES, config.quota_bytes_per_second, 1, "quota_bytes_per_second", "bytes of events", _BYTES),
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
        """What charges the client for events and their bytes; None if there are no such quotas."""
        if not self._counts_events:
            return None
        client = client_key(req)
        return lambda events, bytes_: self._charge(req, client, self._publishing, (events, bytes_))

    def _charge(self, req: falcon.Request, client: str, policies: Sequence[Policy], costs: Sequence[int]) -> None:
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

    def __init__(self, policy: Policy, cost: int, missing_s: float) -> None:
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
    """Say in a response what is left of the quotas that its request was charged to."""
    states: Sequence[_State] | None = getattr(req.context, "rate_limits", None)
    if states:
        resp.set_header("RateLimit-Policy", ", ".join(state.policy.field for state in states))
        resp.set_header("RateLimit", ", ".join(state.field for state in states))
