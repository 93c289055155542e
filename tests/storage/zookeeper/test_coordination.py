import pytest

from rioni.domain.errors import Invalid
from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator
from rioni.storage.zookeeper.nodes import cursor_path
from tests.contracts.coordination import A0, ALL, name, offset
from tests.contracts.coordinator import CoordinatorContract


pytestmark = pytest.mark.zookeeper


class TestZooKeeperCoordinator(CoordinatorContract):
    @pytest.fixture
    def other(self, start) -> ZooKeeperCoordinator:
        """The coordinator of another node of the cluster."""
        return start().coordinator


def test_a_commit_beside_the_deletion_of_its_partition_is_rejected(start):
    process, subscription = start(), name()
    coordinator = process.coordinator
    coordinator.initialise(subscription, ALL)
    coordinator.join(subscription, "s")
    process.session.request(lambda client: client.delete_async(cursor_path(subscription, A0)))
    with pytest.raises(Invalid):
        coordinator.commit(subscription, "s", [(A0, offset(1))])
    coordinator.record_delivery_attempt(subscription, "s", A0, offset(1), None)
