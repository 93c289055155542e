import pytest

from rioni.storage.zookeeper.leadership import ZooKeeperLeadership
from rioni.storage.zookeeper.paths import LEADER
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


def test_a_worker_is_chosen_where_the_answer_to_it_was_lost(cut_off, this):
    process, way = cut_off
    leadership, other = ZooKeeperLeadership(process.keeper), ZooKeeperLeadership(this.keeper)
    way.cut_answer_to(process.keeper.worker.encode())
    assert not leadership.held()
    wait_until(lambda: this.keeper.ask(lambda client: client.exists_async(LEADER))[0])
    way.break_off()
    way.heal()
    wait_until(leadership.held)
    assert not other.held()
