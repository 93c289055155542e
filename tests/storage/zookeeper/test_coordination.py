import pytest

from rioni.storage.zookeeper.coordination import ZooKeeperCoordinator
from tests.contracts.coordinator import CoordinatorContract


pytestmark = pytest.mark.zookeeper


class TestZooKeeperCoordinator(CoordinatorContract):
    @pytest.fixture
    def other(self, start) -> ZooKeeperCoordinator:
        """The coordinator of another node of the cluster."""
        return start().coordinator
