from types import SimpleNamespace

import pytest

from rioni.storage.zookeeper.node_cache import NodeCache
from tests.contracts.coordination import name


class Requests:
    """A session whose requests are answered when the test says so."""

    connected, timeout_s = True, 0.0

    def __init__(self, on_request):
        self._on_request = on_request

    def listen(self, _resume):
        """Nothing is resumed: the connection never breaks."""

    def watched(self, request, answer):
        def get_async(path, watch):
            stat = SimpleNamespace(version=0)
            reply = SimpleNamespace(exception=None, get=lambda block: (path.encode(), stat))  # noqa: ARG005
            self._on_request(path, watch, lambda: answer(reply))

        request(SimpleNamespace(get_async=get_async))


def test_a_cached_node_is_returned_that_changes_while_another_one_is_read():
    seen, watches = [], {}

    def on_request(path, watch, respond):
        seen.append(path)
        if path == "/second":
            watches["/first"](None)
        watches[path] = watch
        if seen.count(path) == 1:
            respond()

    node_cache = NodeCache(Requests(on_request), lambda _path: True, lambda _path, _known: None)
    assert node_cache.node("/first").data == b"/first"
    found = node_cache.cached(["/first", "/second"])
    assert [node and node.data for node in found] == [b"/first", b"/second"]
    assert seen == ["/first", "/second", "/first"]


@pytest.mark.zookeeper
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
