"""Waits until all streams of a subscription have ended on all nodes."""

from collections.abc import Callable

from rioni.domain.ports.coordinator import Topology
from rioni.domain.ports.host import Clock, Waiter


POLL_S = 1.0
"""Polling interval, in case a notification is lost."""


def wait_for_streams_to_end(topology: Callable[[], Topology], waiter: Waiter, clock: Clock, timeout_s: float) -> bool:
    """Wait until there are no sessions; return whether that happened before the timeout. Blocks."""
    deadline_s = clock.monotonic() + timeout_s
    while topology().sessions:
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            return False
        waiter.wait(min(left_s, POLL_S))
    return True
