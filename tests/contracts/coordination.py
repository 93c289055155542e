"""Shared by the contract tests of the port `Coordinator`: a subscription to four partitions, and a stream of it."""

from uuid import uuid4

import pytest

from rioni.domain.ports.coordinator import Coordinator
from rioni.domain.timelines.position import EventTypePartition, format_offset


ENOUGH_S = 20
A0, A1, A2, A3, A4 = (EventTypePartition("a", str(number)) for number in range(5))


def offset(position: int) -> str:
    return format_offset(1, position)


BEFORE = offset(-1)
ALL = dict.fromkeys((A0, A1, A2, A3), BEFORE)


def name() -> str:
    return str(uuid4())


class CoordinationSuite:
    """Subclasses provide `coordinator`, `other` (that of another process), `signals` and `flags`."""

    @pytest.fixture
    def subscription(self, coordinator: Coordinator) -> str:
        subscription = name()
        coordinator.initialise(subscription, ALL)
        return subscription

    @pytest.fixture
    def stream(self, coordinator: Coordinator, subscription: str) -> str:
        stream = name()
        coordinator.join(subscription, stream)
        return stream
