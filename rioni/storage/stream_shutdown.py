"""Waits until all streams of a subscription have ended on all nodes."""

from collections.abc import Callable

from rioni.domain.ports.clock import Clock
from rioni.domain.ports.coordinator import Topology
from rioni.domain.ports.notifier import Waiter


POLL_S = 1.0
"""How often it is looked whether streams have ended, should a notification be lost."""


def wait_for_streams_to_end(topology: Callable[[], Topology], watch: Waiter, clock: Clock, timeout_s: float) -> bool:
    """Wait until there are no sessions any more; return whether that came in time. Blocks that long."""
    deadline_s = clock.monotonic() + timeout_s
    while topology().sessions:
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            return False
        watch.wait(min(left_s, POLL_S))
    return True
