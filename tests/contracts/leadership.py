"""The contract of the port `Leadership`: subclasses provide the fixtures `leadership` and `other`."""

import pytest

from rioni.domain.ports.host import Leadership
from tests.support.waiting import wait_until


class LeadershipContract:
    @pytest.fixture
    def leadership(self) -> Leadership:
        raise NotImplementedError

    @pytest.fixture
    def other(self) -> Leadership:
        """The leadership of another process."""
        raise NotImplementedError

    def test_one_process_is_the_leader_and_remains_it(self, leadership: Leadership, other: Leadership):
        wait_until(leadership.held)
        assert not any(other.held() for _ in range(20))
        assert leadership.held()

    def test_another_process_may_become_the_leader_when_it_ends(self, leadership: Leadership, other: Leadership):
        wait_until(leadership.held)
        assert not other.held()
        leadership.close()
        leadership.close()
        wait_until(other.held)
