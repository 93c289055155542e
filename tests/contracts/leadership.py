"""What every adapter of the port `Leadership` promises: subclasses provide the fixtures `leadership` and `other`."""

import pytest

from rioni.domain.ports.leadership import Leadership
from tests.support.waiting import wait_until


class LeadershipContract:
    @pytest.fixture
    def leadership(self) -> Leadership:
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Leadership:
        """The same, of another process."""
        raise NotImplementedError

    def test_one_is_chosen_and_stays(self, leadership: Leadership, other: Leadership):
        wait_until(leadership.held)
        assert not any(other.held() for _ in range(20))
        assert leadership.held()

    def test_another_one_may_be_when_it_ends(self, leadership: Leadership, other: Leadership):
        wait_until(leadership.held)
        assert not other.held()
        leadership.close()
        leadership.close()
        wait_until(other.held)
