import pytest

from rioni.storage.zookeeper.session.node_cache import NodeCache
from tests.contracts.coordination import name


pytestmark = pytest.mark.zookeeper


def test_an_evicted_node_is_watched_once_however_often_it_is_read(this):
    session, root = this.session, f"/{name()}"
    paths = [f"{root}/{number}" for number in range(50)]
    session.request(*[lambda client, path=path: client.create_async(path) for path in (root, *paths)])
    node_cache = NodeCache(session, lambda _path: False, lambda _path, _known: None, nodes_max=20)
    for _ in range(5):
        for path in paths:
            assert node_cache.node(path).version == 0
    assert sum(map(len, session._client._data_watchers.values())) <= len(paths)
    session.request(lambda client: client.set_async(paths[-1], b"new"))
    session.barrier()
    assert node_cache.node(paths[-1]).data == b"new"
