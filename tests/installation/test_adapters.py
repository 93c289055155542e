import pytest

from rioni.config.settings import Config
from rioni.domain.errors import Unavailable
from rioni.domain.ports.event_store import StoreMeasurements
from rioni.domain.system.storages import StorageEntry
from rioni.installation.adapters import opened_adapters
from rioni.installation.pools import NO_POOLS
from rioni.storage.clock import SystemClock
from rioni.storage.embedded.coordination.coordinator import EmbeddedCoordinator
from rioni.storage.embedded.data_directory import DataDirectory
from tests.support.waiting import wait_until


STORAGES = {
    each.id: each
    for each in (
        StorageEntry(id="here", storage_type="embedded", default=True),
        StorageEntry(id="there", storage_type="kafka", default=False),
    )
}


def test_a_single_node_coordinates_in_its_data_directory(tmp_path):
    with DataDirectory(tmp_path / "data") as directory:
        adapters = opened_adapters(
            Config(data=directory.path), directory, NO_POOLS, STORAGES.get, StoreMeasurements(), SystemClock()
        )
        assert isinstance(adapters.coordinator, EmbeddedCoordinator)
        adapters.stores.of("here").create_topic("a", 1)
        assert directory.events_in("here").exists()
        adapters.close()


@pytest.mark.zookeeper
@pytest.mark.slow
def test_nodes_of_a_cluster_have_no_local_event_store(tmp_path, zookeeper_cluster):
    config = Config(
        zookeeper=f"{zookeeper_cluster.zookeeper}/{tmp_path.name}", kafka="127.0.0.1:1", database="postgresql://nobody"
    )
    with DataDirectory(tmp_path / "one") as one, DataDirectory(tmp_path / "two") as two:
        first = opened_adapters(config, one, NO_POOLS, STORAGES.get, StoreMeasurements(), SystemClock())
        second = opened_adapters(config, two, NO_POOLS, STORAGES.get, StoreMeasurements(), SystemClock())
        assert first.coordinator.worker != second.coordinator.worker
        assert first.coordinator.is_alive(second.coordinator.worker)
        with pytest.raises(Unavailable, match="this installation can't use"):
            first.stores.of("here")
        assert first.quota.acquire("one", {"a": 1}) == []
        assert second.quota.acquire("two", {"a": 1}) == ["a"]
        wait_until(first.leadership.held)
        assert not second.leadership.held()
        gone = second.coordinator.worker
        second.close()
        assert not first.coordinator.is_alive(gone)
        first.close()
