import pytest

from rioni.storage.zookeeper.leadership import ZooKeeperLeadership
from tests.contracts.leadership import LeadershipContract
from tests.support.waiting import wait_until


pytestmark = pytest.mark.zookeeper


class TestZooKeeperLeadership(LeadershipContract):
    @pytest.fixture
    def leadership(self, this) -> ZooKeeperLeadership:
        return ZooKeeperLeadership(this.keeper)

    @pytest.fixture
    def other(self, start) -> ZooKeeperLeadership:
        return ZooKeeperLeadership(start().keeper)


def test_it_ends_with_the_session(this, start):
    second = start()
    leadership, other = ZooKeeperLeadership(second.keeper), ZooKeeperLeadership(this.keeper)
    wait_until(leadership.held)
    assert not other.held()
    second.close()
    wait_until(other.held)
