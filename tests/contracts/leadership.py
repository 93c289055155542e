"""What every adapter of the port `Leadership` promises: subclasses provide the fixtures `leadership` and `other`."""

import time
from collections.abc import Callable

import pytest

from rioni.domain.feed_ports import Leadership


ENOUGH_S = 20


def becomes_true(question: Callable[[], bool]) -> bool:
    """Ask again and again, as the broker does."""
    deadline_s = time.monotonic() + ENOUGH_S
    while not (answer := question()) and time.monotonic() < deadline_s:
        time.sleep(0.001)
    return answer


class LeadershipContract:
    @pytest.fixture
    def leadership(self) -> Leadership:
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Leadership:
        """The same, of another process."""
        raise NotImplementedError

    def test_one_is_chosen_and_stays(self, leadership: Leadership, other: Leadership):
        assert becomes_true(leadership.held)
        assert not any(other.held() for _ in range(20))
        assert leadership.held()

    def test_another_one_may_be_when_it_ends(self, leadership: Leadership, other: Leadership):
        assert becomes_true(leadership.held)
        assert not other.held()
        leadership.close()
        leadership.close()
        assert becomes_true(other.held)
