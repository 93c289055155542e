import pytest

from rioni.storage.zookeeper.session.node_cache import NodeCache
from tests.contracts.coordination import name


pytestmark = pytest.mark.zookeeper


def test_what_was_forgotten_is_watched_once_however_often_it_is_read(this):
    keeper, root = this.keeper, f"/{name()}"
    paths = [f"{root}/{number}" for number in range(50)]
    keeper.ask(*[lambda client, path=path: client.create_async(path) for path in (root, *paths)])
    mirror = NodeCache(keeper, lambda _path: False, lambda _path, _known: None, nodes_max=20)
    for _ in range(5):
        for path in paths:
            assert mirror.node(path).version == 0
    assert sum(map(len, keeper._client._data_watchers.values())) <= len(paths)
    keeper.ask(lambda client: client.set_async(paths[-1], b"new"))
    keeper.barrier()
    assert mirror.node(paths[-1]).data == b"new"
