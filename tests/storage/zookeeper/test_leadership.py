import pytest

from rioni.storage.zookeeper.leadership import ZooKeeperLeadership
from rioni.storage.zookeeper.nodes import LEADER
from tests.contracts.leadership import LeadershipContract
from tests.support.waiting import wait_until


pytestmark = pytest.mark.zookeeper


class TestZooKeeperLeadership(LeadershipContract):
    @pytest.fixture
    def leadership(self, this) -> ZooKeeperLeadership:
        return ZooKeeperLeadership(this.session)

    @pytest.fixture
    def other(self, start) -> ZooKeeperLeadership:
        return ZooKeeperLeadership(start().session)


def test_leadership_ends_with_the_session(this, start):
    second = start()
    leadership, other = ZooKeeperLeadership(second.session), ZooKeeperLeadership(this.session)
    wait_until(leadership.held)
    assert not other.held()
    second.close()
    wait_until(other.held)


def test_a_worker_becomes_the_leader_though_the_answer_was_lost(cut_off, this):
    process, way = cut_off
    leadership, other = ZooKeeperLeadership(process.session), ZooKeeperLeadership(this.session)
    way.cut_answer_to(process.session.worker.encode())
    assert not leadership.held()
    wait_until(lambda: this.session.request(lambda client: client.exists_async(LEADER))[0])
    way.break_off()
    way.heal()
    wait_until(leadership.held)
    assert not other.held()
